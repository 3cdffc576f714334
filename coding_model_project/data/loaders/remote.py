"""Downloads of data sets from the Hugging Face hub."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coding_model_project.data.loaders.base import Part, Published
from coding_model_project.errors import ConfigError, DownloadError

_REFUSED = (400, 401, 403, 404)
"""HTTP statuses of the hub that the user can fix with another name or a token."""


def hub_files(published: Published, part: Part, revision: str) -> list[Path]:
    """Download the files of a part, at a commit that `hub_revision` returned.

    Raises:
        ConfigError: the repository has no such file, or this user may not read it.
        DownloadError: the hub does not answer.
    """
    from huggingface_hub import snapshot_download

    assert published.hub is not None
    patterns = hub_patterns(published, part)
    with _one_line(published.hub, revision):
        folder = snapshot_download(
            published.hub, repo_type="dataset", revision=revision, allow_patterns=patterns
        )
    for pattern in patterns:
        if files := sorted(Path(folder).glob(pattern)):
            return files
    raise ConfigError(
        f"the hub's {published.hub}@{revision[:12]} has no {' or '.join(patterns)}; download it "
        f"yourself (hf download {published.hub} --repo-type dataset) and pass its file "
        f"({published.name}=PATH)"
    )


def hub_patterns(published: Published, part: Part) -> list[str]:
    """Return patterns of a part's files in its repository, most likely first.

    Local copies have the same names, sometimes prefixed by the repository's.
    """
    if part.hub_file is not None:
        return [part.hub_file]
    repository = f"{(published.hub or '').split('/')[-1]}/"
    split = part.hub_split or part.split
    folders = (part.config or "default", "data") if split else ()
    usual = [f"{folder}/{split}-*.parquet" for folder in folders]
    named = [file.removeprefix(repository) for file in part.files]
    return list(dict.fromkeys([*(one for one in named if "*" in one), *usual, *named]))


def hub_revision(published: Published, wanted: str | None) -> str:
    """Return the commit of a revision, or the newest commit. Fails within seconds if offline.

    Raises:
        ConfigError: the hub has no such data set or revision, or this user may not read it.
        DownloadError: the hub does not answer.
    """
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.constants import HF_HUB_OFFLINE
    except ImportError as error:
        raise ConfigError(
            "huggingface_hub, which fetches public data sets, is not installed: "
            "pip install huggingface_hub"
        ) from error
    if wanted is not None and HF_HUB_OFFLINE:
        return wanted  # offline, it must be in the hub's cache
    with _one_line(published.hub or "", wanted):
        found = HfApi().dataset_info(published.hub or "", revision=wanted, timeout=10)
    return found.sha or wanted or "main"


@contextmanager
def _one_line(repository: str, revision: str | None) -> Iterator[None]:
    """Convert the hub's errors into a `ConfigError`, which the user can fix, or a `DownloadError`."""
    from huggingface_hub import constants, errors

    at = f" at revision {revision}" if revision else ""
    try:
        yield
    except errors.GatedRepoError as error:
        page = f"https://huggingface.co/datasets/{repository}"
        raise ConfigError(
            f"the hub's {repository} is gated: accept its terms at {page}, then set HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ConfigError(f"the hub's {repository} has no revision {revision}") from error
    except errors.RepositoryNotFoundError as error:
        raise ConfigError(
            f"the hub has no data set {repository} that this user may read"
        ) from error
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        why = (
            "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the network cannot be reached"
        )
        raise DownloadError(f"{repository}{at} is not in the hub's cache and {why}") from error
    except errors.HFValidationError as error:
        raise ConfigError(f"{repository}: not the name of a data set on the hub") from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        kind = ConfigError if status in _REFUSED else DownloadError
        raise kind(f"the hub answered HTTP {status} for {repository}{at}") from error
    except network_errors() as error:
        line = str(error).splitlines()[0] if str(error) else ""
        raise DownloadError(
            f"the hub cannot be reached for {repository}{at}: {type(error).__name__} {line}".rstrip()
        ) from error


def network_errors() -> tuple[type[Exception], ...]:
    """Return the errors of huggingface_hub's HTTP library; those of requests are OSErrors."""
    libraries = (sys.modules.get(name) for name in ("httpx", "httpx2"))
    return (OSError, *(library.HTTPError for library in libraries if library is not None))
