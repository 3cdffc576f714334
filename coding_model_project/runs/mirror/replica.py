"""Local folders that follow mirrored runs, for all readers of a run's folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from coding_model_project.atomic import write_text
from coding_model_project.contained import below
from coding_model_project.errors import CodingModelError, ConfigError
from coding_model_project.runs.mirror.mirror_index import (
    INDEX,
    PART_BYTES,
    MirroredFile,
    MirrorIndex,
    digest,
    object_names,
)
from coding_model_project.storage.fetching import cache_dir, locked
from coding_model_project.storage.object_store import ObjectStore
from coding_model_project.storage.store_errors import explained

Wanted = Callable[[str], bool]


_HEAVY = ("rollouts", "completions", "results", "ungradable")


def is_light(path: str) -> bool:
    """Return whether the list of runs needs a file: not samples, traces or console logs."""
    top, _, below = path.partition("/")
    return below.endswith((".json", ".txt", "heartbeat")) if below else not top.startswith(_HEAVY)


def everything(path: str) -> bool:
    return True


class Replica:
    """A local folder that follows the index of a mirrored run."""

    def __init__(self, store: ObjectStore, run: str, folder: Path, wanted: Wanted) -> None:
        """Prepare the replica.

        Args:
            run: the run's path below the store's URL; empty if the run is at the URL itself.
        """
        self._store = store
        self._below = f"{run}/" if run else ""
        self._folder = folder
        self._wanted = wanted
        self._has: dict[str, MirroredFile] = {}

    def pull(self) -> MirrorIndex:
        """Fetch all changes; leave files that change during the fetch for the next call.

        Raises:
            ConfigError: no run is mirrored there.
        """
        content = self._store.read(f"{self._below}{INDEX}")
        url = f"{self._store.url}/{self._below}".rstrip("/")
        if content is None:
            raise ConfigError(
                f"{url}: no run is mirrored there (it has no {INDEX}); set coding.mirror.url=URL to "
                "mirror a run"
            )
        index = MirrorIndex.parse(content, url)
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder.with_name(f".{self._folder.name}.lock"), url):
            self._bring_to(index)
        return index

    def _bring_to(self, index: MirrorIndex) -> None:
        state = self._folder / INDEX  # reread each time: other processes pull into this folder too
        self._has = {}
        if state.exists():
            had = MirrorIndex.parse(state.read_bytes(), str(self._folder))
            if had.id != index.id:  # another run took the URL
                for path in had.files:
                    below(self._folder, path).unlink(missing_ok=True)
            else:
                self._has = had.files
        for path, file in index.files.items():
            if self._wanted(path) and self._has.get(path) != file:
                with contextlib.suppress(_ChangedError):
                    self._fetch(path, file)
                    self._has[path] = file
        for path in self._has.keys() - index.files.keys():
            below(self._folder, path).unlink(missing_ok=True)
            del self._has[path]
        had = MirrorIndex(
            id=index.id, writer="", round=index.round, every_s=index.every_s, files=self._has
        )
        write_text(state, had.text())

    def _fetch(self, path: str, file: MirroredFile) -> None:
        target = below(self._folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        names = object_names(path, len(file.parts))
        had = self._has.get(path)
        first = 0
        if had and had.is_prefix_of(file) and target.exists():
            first = min(had.bytes, target.stat().st_size) // PART_BYTES
        last = b""
        if len(names) - first == 1:  # the usual case: a small or grown file
            last = self._part(names[first], first, file)
            if _extended(target, first * PART_BYTES, last):
                os.utime(target, (file.modified, file.modified))
                return
        partial = below(self._folder, f"{path}.partial")
        with partial.open("wb") as written:
            if first:
                with target.open("rb") as before:
                    for _ in range(first):
                        written.write(before.read(PART_BYTES))
            for number in range(first, len(names)):
                written.write(last or self._part(names[number], number, file))
        os.utime(partial, (file.modified, file.modified))
        partial.replace(target)

    def _part(self, name: str, number: int, file: MirroredFile) -> bytes:
        content = self._store.read(self._below + name)
        size = min(PART_BYTES, file.bytes - number * PART_BYTES)
        if content is None or digest(content[:size]) != file.parts[number]:
            raise _ChangedError
        return content[:size]


class _ChangedError(Exception):
    """An object is newer than the index that names it."""


def _extended(target: Path, start: int, content: bytes) -> bool:
    """Append the new content in place, so that readers at the end of the file are not disturbed."""
    if not target.exists():
        return False
    with target.open("r+b") as file:
        file.seek(start)
        known = file.read()
        if len(known) > len(content) or content[: len(known)] != known:
            return False
        file.write(content[len(known) :])
    return True


class Followed:
    """All runs mirrored at or below a URL, as folders below `root`."""

    def __init__(self, url: str, wanted: Wanted = everything) -> None:
        """Open the URL.

        Raises:
            ConfigError: the URL cannot be used.
        """
        self._store = ObjectStore(url, "object store", attempts=3)
        self.url = self._store.url
        key = hashlib.sha256(self.url.encode()).hexdigest()[:16]
        self.root = cache_dir() / "runs" / key / self._store.name
        self._wanted = wanted
        self._replicas: dict[str, Replica] = {}

    def pull(self) -> None:
        """Bring the folders up to date.

        Raises:
            ConfigError: no run is mirrored there, or reading failed for a reason the user can correct.
            DownloadError: the store does not answer.
        """
        with self._errors():
            for run in self._found():
                if run not in self._replicas:
                    folder = below(self.root, run) if run else self.root
                    self._replicas[run] = Replica(self._store, run, folder, self._wanted)
                self._replicas[run].pull()

    def _found(self) -> list[str]:
        if "" in self._replicas or self._store.read(INDEX) is not None:
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
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except CodingModelError:
            raise
        except Exception as error:
            raise explained(error, self.url) from error


@contextlib.contextmanager
def pulling(followed: list[Followed], every_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """Keep folders up to date inside the context; print each outage once, and retry."""
    stop = threading.Event()

    def pull() -> None:
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

    thread = threading.Thread(target=pull, name="replicas", daemon=True)
    if followed:
        thread.start()
    try:
        yield
    finally:
        stop.set()
