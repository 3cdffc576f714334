"""Local folders that follow runs mirrored at URLs (`mirror`), for all readers of a run's folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from coding_model_project.errors import CodingModelError, ConfigError
from coding_model_project.storage.fetching import cache_dir, copy_changed, locked
from coding_model_project.storage.object_store import Entry, ObjectStore
from coding_model_project.storage.store_errors import explaining

RUN_JSON = "run.json"
"""The file that identifies a mirrored run. It is uploaded last in the first round."""
NOT_MIRRORED = ("checkpoints", "exports", "wandb", ".hydra")
"""Excluded names at the top of a run's folder. W&B uploads its own."""
_HEAVY = ("rollouts", "completions", "results", "ungradable")


def is_light(path: str) -> bool:
    """Return whether the list of runs needs a file: not samples, traces or console logs."""
    top, _, below = path.partition("/")
    return below.endswith((".json", ".txt", "heartbeat")) if below else not top.startswith(_HEAVY)


def everything(path: str) -> bool:
    return True


def files_of_run(
    entries: Mapping[str, Entry], run: str = "", wanted: Callable[[str], bool] = everything
) -> dict[str, Entry]:
    """Return the mirrored files of a run among the objects at a URL.

    Args:
        run: the path of the run's folder, empty or with a slash at its end.
        wanted: a filter of paths below that folder.
    """
    below = {path: path.removeprefix(run) for path in entries if path.startswith(run)}
    return {
        path: entries[path]
        for path, name in below.items()
        if name.split("/")[0] not in NOT_MIRRORED and wanted(name)
    }


def is_same_run(one: bytes, other: bytes) -> bool:
    """Return whether two contents of `run.json` are of one run: created at the same time and place."""
    first, second = (json.loads(content) for content in (one, other))
    return all(first.get(key) == second.get(key) for key in ("created", "host"))


class Followed:
    """All runs mirrored at or below a URL, as folders below `root`."""

    def __init__(self, url: str, wanted: Callable[[str], bool] = everything) -> None:
        """Open the URL.

        Args:
            wanted: a filter of paths in a run's folder.

        Raises:
            ConfigError: the URL cannot be used.
        """
        self._store = ObjectStore(url, "object store", attempts=3)
        self.url = self._store.url
        key = hashlib.sha256(self.url.encode()).hexdigest()[:16]
        self.root = cache_dir() / "mirrors" / key / self._store.name
        self._wanted = wanted

    def pull(self) -> None:
        """Bring the folders up to date.

        Raises:
            ConfigError: no run is mirrored there, or reading failed for a reason the user can correct.
            DownloadError: the store does not answer.
        """
        with explaining(self.url):
            entries = self._store.entries()
        end = f"/{RUN_JSON}"
        runs = [path.removesuffix(RUN_JSON) for path in entries if f"/{path}".endswith(end)]
        if not runs:
            raise ConfigError(
                f"{self.url}: no run is mirrored at this URL or below it (there is no {RUN_JSON}); set "
                "coding.mirror.url=URL to mirror a run"
            )
        files: dict[str, Entry] = {}
        for run in runs:
            files |= files_of_run(entries, run, self._wanted)
        self.root.mkdir(parents=True, exist_ok=True)
        with (
            locked(self.root.with_name(f".{self.root.name}.lock"), self.url),
            explaining(self.url),
        ):
            copy_changed(self._store, files, self.root)
            for path in self.root.rglob("*"):
                if path.is_file() and path.relative_to(self.root).as_posix() not in entries:
                    path.unlink()

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
