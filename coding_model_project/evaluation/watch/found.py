"""Complete checkpoints on disk or behind URLs, and their models."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from coding_model_project.atomic import write_text
from coding_model_project.contained import below, copy_folder
from coding_model_project.errors import CheckpointError, ConfigError
from coding_model_project.evaluation.journal import storage_errors
from coding_model_project.runs.checkpoint_store import CheckpointStore
from coding_model_project.runs.checkpoints import (
    FOLDER,
    TRACKER,
    checkpoints_in,
    read_manifest,
    step_of,
)
from coding_model_project.storage.object_store import as_url, is_url

_MERGER = "coding_model_project.verl_ext.trainers.verl_checkpoints"
_WEIGHTS = ("*.safetensors", "*.bin")
_SHARDS = "model_world_size_*_rank_*.pt"
_NOT_THE_MODEL = ("optim_world_size_*", "extra_state_world_size_*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint with a model."""

    folder: Path
    run: Path
    """Folder of the training run."""
    step: int
    key: str
    """Key of the content; a checkpoint rewritten by a resumed run has another key."""
    model: Path
    is_merged: bool
    """True if `model` is a Hugging Face folder; else it has verl's shards, to merge first."""


def find(patterns: Sequence[str]) -> list[Checkpoint]:
    """Return the complete checkpoints, ordered by run and step.

    Args:
        patterns: globs of runs, of folders of checkpoints, or of checkpoints.
    """
    folders = dict.fromkeys(folder for pattern in patterns for folder in _folders(pattern))
    known = [found for folder in folders if (found := _checkpoint(folder)) is not None]
    return sorted(known, key=lambda one: (one.run, one.step))


def runs(patterns: Sequence[str]) -> set[Path]:
    """Return the folders of the matching training runs, with or without checkpoints."""
    return {_run_of(path) for pattern in patterns for path in _matches(pattern)}


def _run_of(path: Path) -> Path:
    if FOLDER.fullmatch(path.name):
        path = path.parent
    return path.parent if path.name == "checkpoints" else path


def _matches(pattern: str) -> list[Path]:
    return [Path(path).absolute() for path in sorted(glob.glob(pattern))]  # noqa: PTH207 - absolute


def _folders(pattern: str) -> Iterator[Path]:
    for path in _matches(pattern):
        if FOLDER.fullmatch(path.name):
            yield path
        else:
            yield from checkpoints_in(path)
            yield from checkpoints_in(path / "checkpoints")


def _checkpoint(folder: Path) -> Checkpoint | None:
    try:
        model = _model(folder)
        written = _written(folder, model) if model is not None else None
    except OSError:  # retention is deleting the checkpoint
        return None
    if model is None or written is None:
        return None
    run, step = _run_of(folder), step_of(folder)
    digest = hashlib.blake2b(f"{run.name} {step} {written}".encode(), digest_size=4).hexdigest()
    return Checkpoint(
        folder=folder,
        run=run,
        step=step,
        key=f"{run.name}_{step:06d}_{digest}",
        model=model,
        is_merged=_has_weights(model),
    )


def _written(folder: Path, model: Path) -> float | None:
    """Return when a checkpoint was completed, or None if it is incomplete.

    Its manifest is written last. Without one, verl's tracker file names the last complete step.
    """
    try:
        return read_manifest(folder).created
    except FileNotFoundError:
        pass
    except ValueError:  # damaged: the run moves it aside when it resumes
        return None
    try:
        last = int((folder.parent / TRACKER).read_text())
    except (FileNotFoundError, ValueError):
        return None
    if step_of(folder) > last:
        return None
    return max(file.stat().st_mtime for file in model.iterdir())


def _model(folder: Path) -> Path | None:
    """Return the folder of the model, or None in the remains of a deleted checkpoint."""
    for parent in (folder / "actor", folder):
        if _has_weights(parent / "huggingface"):
            return parent / "huggingface"
        if any(parent.glob(_SHARDS)):
            return parent
    return None


def _has_weights(folder: Path) -> bool:
    return (folder / "config.json").exists() and any(
        True for pattern in _WEIGHTS for _ in folder.glob(pattern)
    )


def hold(checkpoint: Checkpoint, out: Path) -> None:
    """Record a checkpoint in `out`, and protect its model from retention with hard links.

    Raises:
        FileNotFoundError: retention has already deleted the checkpoint.
    """
    target = held_model(checkpoint, out)
    if not target.exists():
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            ignored = shutil.ignore_patterns(*_NOT_THE_MODEL)
            copy_folder(checkpoint.model, partial, copy_function=os.link, ignore=ignored)
            partial.rename(target)
        except shutil.Error as error:
            shutil.rmtree(partial, ignore_errors=True)
            if not checkpoint.model.exists():
                raise FileNotFoundError(checkpoint.model) from error
            # Another file system: the model is evaluated in place.
    write_text(target.with_suffix(".json"), json.dumps(asdict(checkpoint), default=str) + "\n")


def held_in(out: Path) -> list[Checkpoint]:
    """Return checkpoints recorded by an earlier watch and not evaluated; they may be deleted since."""
    from pydantic import TypeAdapter

    row = TypeAdapter(Checkpoint)
    return [row.validate_json(file.read_bytes()) for file in sorted(out.glob("*_*.json"))]


def held_model(checkpoint: Checkpoint, out: Path) -> Path:
    """Return the path at which `hold` keeps a model, if it can."""
    return out / f"{checkpoint.key}.model"


def release(checkpoint: Checkpoint, out: Path) -> None:
    """Delete the record and model of an evaluated checkpoint."""
    target = held_model(checkpoint, out)
    target.with_suffix(".json").unlink(missing_ok=True)
    for folder in (target, target.with_suffix(".merged")):
        shutil.rmtree(folder, ignore_errors=True)


def merge_command(shards: Path, target: Path) -> list[str]:
    """Return the command that merges shards; a process, because only `verl_ext` may import verl."""
    return [sys.executable, "-m", _MERGER, str(shards), str(target)]


# ── checkpoints behind URLs ───────────────────────────────────────────────────────────────────────

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
                with storage_errors(folder):
                    steps = store.steps()
                    for step in reversed(steps):
                        if not (folder / f"global_step_{step}").exists():
                            store.copy(
                                step, folder, lambda path: not _TRAINING_ONLY.fullmatch(path)
                            )
                    for copied in checkpoints_in(folder):
                        if step_of(copied) not in steps:
                            shutil.rmtree(copied)
                self._down.discard(store.url)
            except CheckpointError as error:
                if self._is_first:
                    raise
                if store.url not in self._down:
                    self._say(f"{error}; retrying at the next poll")
                self._down.add(store.url)
        self._is_first = False
