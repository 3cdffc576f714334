"""Data sets that are not on this machine: objects behind a URL, and the hub."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from coding_model_project.data.loaders.base import Located, Part, Published
from coding_model_project.data.loaders.files import read_rows
from coding_model_project.errors import ConfigError

CACHE_VARIABLE = "CODING_DATA_CACHE"


def is_url(path: str | Path) -> bool:
    """Whether a path is one of fsspec's URLs (s3://, gs://, https://, memory://, ...)."""
    return "://" in str(path)


def cache_dir() -> Path:
    """The folder for copies of remote files: $CODING_DATA_CACHE, else the user's cache folder."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "coding_model_project" / "data"


def local_copy(url: str, cache: Path | None = None) -> Path:
    """A copy of the object behind a URL; made once for each of its versions.

    Raises:
        ConfigError: it cannot be read, or the client library for its protocol is missing.
    """
    import fsspec

    try:
        files, inside = fsspec.url_to_fs(url)
        version = files.ukey(inside)
        name = PurePosixPath(inside).name
        key = hashlib.sha256(f"{url} {version}".encode()).hexdigest()[:16]
        copy = (cache or cache_dir()) / key / name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            partial = copy.with_name(f"{name}.{os.getpid()}.partial")
            files.get_file(inside, str(partial))
            partial.replace(copy)
    except ImportError as error:
        raise ConfigError(f"{url}: {error}") from error
    except Exception as error:  # each protocol's client library has exceptions of its own
        raise ConfigError(f"{url}: cannot be read: {type(error).__name__} {error}") from error
    return copy


def hub_rows(published: Published, part: Part, revision: str) -> Iterator[Located]:
    """A part's rows, from a commit that `hub_revision` found.

    Raises:
        ConfigError: it cannot be downloaded.
    """
    assert published.hub is not None
    where = f"{published.hub}@{revision[:12]}"
    split = part.hub_split or part.split
    try:
        if part.hub_file is not None:
            from huggingface_hub import hf_hub_download

            file = hf_hub_download(
                published.hub, part.hub_file, repo_type="dataset", revision=revision
            )
            yield from read_rows(Path(file))
            return
        from datasets import load_dataset

        rows: Any = load_dataset(published.hub, part.config, split=split, revision=revision)  # type: ignore[call-overload]
    except (OSError, ValueError, RuntimeError) as error:  # what the two libraries raise
        line = str(error).splitlines()[0] if str(error) else ""
        raise ConfigError(
            f"{where}: cannot be downloaded: {type(error).__name__} {line}"
        ) from error
    for number, row in enumerate(rows, 1):
        yield f"{where} {part.config or 'default'}/{split} row {number}", row


def hub_revision(published: Published, wanted: str | None) -> str:
    """The commit behind a revision, or behind the newest one. Fails within seconds if offline.

    Raises:
        ConfigError: the hub cannot be reached, or has no such data set or revision.
    """
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import HfHubHTTPError

    if wanted is not None and HF_HUB_OFFLINE:
        return wanted  # the user says that it lies in the hub's cache
    try:
        found = HfApi().dataset_info(published.hub or "", revision=wanted, timeout=10)
    except (OSError, ValueError, httpx.HTTPError, HfHubHTTPError) as error:
        raise ConfigError(f"the hub gave no {published.hub} ({type(error).__name__})") from error
    return found.sha or wanted or "main"
