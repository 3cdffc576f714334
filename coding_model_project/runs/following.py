"""Local folders that follow runs mirrored at URLs (`mirror`), for all readers of a run's folder.

URL/mirror.json     the index: whose copy it is, and which files it has; written last in a round
URL/PATH            a file of the run's folder, with its secrets masked
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from coding_model_project.atomic import write_text
from coding_model_project.contained import below, relative
from coding_model_project.errors import CodingModelError, ConfigError
from coding_model_project.storage.fetching import Copied, cache_dir, copy_changed, locked
from coding_model_project.storage.object_store import Entry, ObjectStore
from coding_model_project.storage.store_errors import explaining

INDEX = "mirror.json"
NOT_MIRRORED = ("checkpoints", "exports", "wandb", ".hydra", INDEX)
"""Excluded names at the top of a run's folder. W&B uploads its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorIndex:
    """The files of a mirrored run by their path."""

    id: str
    """Identifier of the run's folder, so that another run does not write to the same URL."""
    writer: str
    """Identifier of the writing process."""
    round: int
    """Counter of rounds; it also increases without changes, as a heartbeat."""
    every_s: float
    files: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Size in bytes and time of the last change, in seconds since the epoch by the run's clock."""

    def text(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    def entries(self) -> Mapping[str, Entry]:
        """Return the files as a store lists objects."""
        return {
            path: Entry(bytes=size, version="", modified=modified)
            for path, (size, modified) in self.files.items()
        }

    @classmethod
    def parse(cls, content: bytes, url: str) -> MirrorIndex:
        """Parse the content that `text` returns.

        Raises:
            ConfigError: the content is not an index.
        """
        try:
            fields = json.loads(content)
            files = {
                relative(path): (int(look[0]), float(look[1]))
                for path, look in fields.pop("files").items()
                if isinstance(look, list)  # the run sends files of an older version's index again
            }
            if wrong := [path for path in files if path.split("/")[0] in NOT_MIRRORED]:
                raise ValueError(f"names {wrong[0]!r}, which no mirror has")
            return cls(**fields, files=files)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{url}/{INDEX}: not the index of a mirrored run ({error})"
            ) from error


Wanted = Callable[[str], bool]

_HEAVY = ("rollouts", "completions", "results", "ungradable")


def is_light(path: str) -> bool:
    """Return whether the list of runs needs a file: not samples, traces or console logs."""
    top, _, below = path.partition("/")
    return below.endswith((".json", ".txt", "heartbeat")) if below else not top.startswith(_HEAVY)


def everything(path: str) -> bool:
    return True


def pull(store: ObjectStore, folder: Path, wanted: Wanted = everything) -> Copied:
    """Bring a local folder up to date with the run that is mirrored at a URL.

    Raises:
        ConfigError: no run is mirrored there.
    """
    content = store.read(INDEX)
    if content is None:
        raise ConfigError(
            f"{store.url}: no run is mirrored there (it has no {INDEX}); set coding.mirror.url=URL to "
            "mirror a run"
        )
    index = MirrorIndex.parse(content, store.url)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f".{folder.name}.lock"), store.url):
        own = folder / INDEX  # maybe of another run, which had the URL before
        had = MirrorIndex.parse(own.read_bytes(), str(folder)).files if own.exists() else {}
        done = copy_changed(store, index.entries(), folder, wanted)
        for path in had.keys() - index.files.keys():
            below(folder, path).unlink(missing_ok=True)
        write_text(own, index.text())
    return done


class Followed:
    """All runs mirrored at or below a URL, as folders below `root`."""

    def __init__(self, url: str, wanted: Wanted = everything) -> None:
        """Open the URL.

        Raises:
            ConfigError: the URL cannot be used.
        """
        self._given = url.rstrip("/")
        self._store = ObjectStore(url, "object store", attempts=3)
        self.url = self._store.url
        key = hashlib.sha256(self.url.encode()).hexdigest()[:16]
        self.root = cache_dir() / "mirrors" / key / self._store.name
        self._wanted = wanted
        self._runs: dict[str, ObjectStore] = {}

    def pull(self) -> None:
        """Bring the folders up to date.

        Raises:
            ConfigError: no run is mirrored there, or reading failed for a reason the user can correct.
            DownloadError: the store does not answer.
        """
        with explaining(self.url):
            for run in self._found():
                url = f"{self._given}/{run}" if run else self._given
                store = self._runs.setdefault(run, ObjectStore(url, "object store", attempts=3))
                pull(store, below(self.root, run) if run else self.root, self._wanted)

    def _found(self) -> list[str]:
        if "" in self._runs or self._store.read(INDEX) is not None:
            return [""]
        found = [path for path in self._store.entries() if path.endswith(f"/{INDEX}")]
        if not found:
            raise ConfigError(
                f"{self.url}: no run is mirrored at this URL or below it; set coding.mirror.url=URL to "
                "mirror a run"
            )
        return [path.removesuffix(f"/{INDEX}") for path in found]

    def shown(self, path: Path) -> str:
        """Return the URL of a folder below `root`."""
        run = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else ""
        return self.url if run in ("", ".") else f"{self.url}/{run}"


@contextlib.contextmanager
def pulling(followed: list[Followed], every_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """Keep folders up to date inside the context; print each outage once, and retry."""
    stop = threading.Event()

    def keep() -> None:
        down: set[str] = set()
        while not stop.wait(every_s):
            for one in followed:
                try:
                    one.pull()
                    down.discard(one.url)
                except CodingModelError as error:
                    if one.url not in down:
                        say(f"{error}; retrying every {every_s:g} s")
                    down.add(one.url)

    thread = threading.Thread(target=keep, name="replicas", daemon=True)
    if followed:
        thread.start()
    try:
        yield
    finally:
        stop.set()
