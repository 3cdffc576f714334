"""Checkpoints behind URLs, whose models are copied to folders for `found.find`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from coding_model_project.contained import below
from coding_model_project.errors import CheckpointError, ConfigError, StorageError
from coding_model_project.runs.checkpoint_store import CheckpointStore
from coding_model_project.runs.checkpoints import FOLDER, checkpoints_in, step_of
from coding_model_project.storage.object_store import as_url, is_url

_TRAINING_ONLY = re.compile(r"(.*/)?((optim|extra_state)_world_size_.*|data\.pt)|transfer_queue/.*")
"""Files of a checkpoint that evaluations do not need."""

Say = Callable[[str], None]


class FetchedCheckpoints:
    """Folders below `out` that mirror the checkpoints at URLs.

    A model is copied once, and deleted when its checkpoint is pruned at the URL; hard links keep models
    that are still to be evaluated (`found.hold`).
    """

    def __init__(self, patterns: Sequence[str], out: Path, say: Say) -> None:
        """
        Args:
            patterns: globs of local paths, and URLs of folders of checkpoints.

        Raises:
            ConfigError: a URL is a single checkpoint, or two URLs have the same run name.
        """
        self._say = say
        self._stores: list[tuple[CheckpointStore, Path]] = []
        self._down: set[str] = set()
        self._is_first = True
        self.patterns: list[str] = []
        for pattern in patterns:
            if not is_url(pattern):
                self.patterns.append(pattern)
                continue
            url = as_url(pattern).rstrip("/")
            above, _, name = url.rpartition("/")
            if FOLDER.fullmatch(name):
                raise ConfigError(
                    f"{url}: a single checkpoint; pass the folder of checkpoints, {above}"
                )
            run = above.rpartition("/")[2] if name == "checkpoints" else name
            folder = below(out / "fetched", run) / "checkpoints"
            if any(folder == taken for _, taken in self._stores):
                raise ConfigError(
                    f"{url}: two URLs have the same run name ({run}); watch them separately"
                )
            self._stores.append((CheckpointStore(url, 1, say), folder))
            self.patterns.append(str(folder.parent))

    def refresh(self) -> None:
        """Copy the models of new checkpoints, and report an outage once.

        Raises:
            CheckpointError: a store could not be read at the first poll.
            StorageError: a model cannot be written to this machine's disk.
        """
        for store, folder in self._stores:
            try:
                self._refresh(store, folder)
                self._down.discard(store.url)
            except CheckpointError as error:
                if self._is_first:
                    raise
                if store.url not in self._down:
                    self._say(f"{error}; retrying at the next poll")
                self._down.add(store.url)
        self._is_first = False

    def _refresh(self, store: CheckpointStore, folder: Path) -> None:
        with _disk_errors(folder):
            steps = store.readable_steps()
            for step in reversed(steps):
                if not (folder / f"global_step_{step}").exists():
                    store.copy(step, folder, lambda path: not _TRAINING_ONLY.fullmatch(path))
            for copied in checkpoints_in(folder):
                if step_of(copied) not in steps:
                    shutil.rmtree(copied)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be written ({error.strerror}); free some space"
        ) from error
