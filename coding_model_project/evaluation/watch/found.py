"""Complete checkpoints on disk, and their models."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from coding_model_project.atomic import write_json
from coding_model_project.contained import copy_folder
from coding_model_project.runs.checkpoints import (
    FOLDER,
    TRACKER,
    checkpoints_in,
    read_manifest,
    step_of,
)

_MERGER = "coding_model_project.verl_ext.trainers.merger"
_WEIGHTS = ("*.safetensors", "*.bin")
_SHARDS = "model_world_size_*_rank_*.pt"
_NOT_THE_MODEL = re.compile(r"(optim|extra_state)_world_size_.*")


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
    run = _run_of(folder)
    step = step_of(folder)
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
            copy_folder(checkpoint.model, partial, copy_function=os.link, ignore=_not_the_model)
            partial.rename(target)
        except shutil.Error as error:
            shutil.rmtree(partial, ignore_errors=True)
            if not checkpoint.model.exists():
                raise FileNotFoundError(checkpoint.model) from error
            # Another file system: the model is evaluated in place.
    fields = {name: str(value) for name, value in asdict(checkpoint).items()}
    fields |= {"step": checkpoint.step, "is_merged": checkpoint.is_merged}
    write_json(target.with_suffix(".json"), fields)


def held_in(out: Path) -> list[Checkpoint]:
    """Return checkpoints recorded by an earlier watch and not evaluated; they may be deleted since."""
    found = [(file.stem, json.loads(file.read_text())) for file in sorted(out.glob("*_*.json"))]
    paths = ("folder", "run", "model")
    return [
        Checkpoint(**row | {"key": key} | {name: Path(row[name]) for name in paths})
        for key, row in found
    ]


def held_model(checkpoint: Checkpoint, out: Path) -> Path:
    """Return the path at which `hold` keeps a model, if it can."""
    return out / f"{checkpoint.key}.model"


def release(checkpoint: Checkpoint, out: Path) -> None:
    """Delete the record and model of an evaluated checkpoint."""
    target = held_model(checkpoint, out)
    target.with_suffix(".json").unlink(missing_ok=True)
    for folder in (target, target.with_suffix(".merged")):
        shutil.rmtree(folder, ignore_errors=True)


def _not_the_model(_: str, names: list[str]) -> set[str]:
    return {name for name in names if _NOT_THE_MODEL.fullmatch(name)}


def merge_command(shards: Path, target: Path) -> list[str]:
    """Return the command that merges shards; a process, because only `verl_ext` may import verl."""
    return [sys.executable, "-m", _MERGER, str(shards), str(target)]
