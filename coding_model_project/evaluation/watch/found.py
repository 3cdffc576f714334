"""Checkpoints on disk: which are written to the end, and the model that is in one."""

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

from coding_model_project.runs.checkpoints import (
    FOLDER,
    TRACKER,
    checkpoints_in,
    read_manifest,
    step_of,
)
from coding_model_project.runs.folder import write_json

_WEIGHTS = ("*.safetensors", "*.bin")
_SHARDS = "model_world_size_*_rank_*.pt"
_NOT_THE_MODEL = re.compile(r"(optim|extra_state)_world_size_.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One that is written to the end and holds a model."""

    folder: Path
    run: Path
    """The training's folder."""
    step: int
    key: str
    """Of this content: a checkpoint that a resumed run wrote anew is another one."""
    model: Path
    is_merged: bool
    """`model` is a folder as Hugging Face has it; else verl's shards, which must be merged first."""


def find(patterns: Sequence[str]) -> list[Checkpoint]:
    """All that can be evaluated, by run and step. What is still being written is passed over.

    Args:
        patterns: globs of runs, of folders of checkpoints, or of checkpoints.
    """
    folders = dict.fromkeys(folder for pattern in patterns for folder in _folders(pattern))
    known = [found for folder in folders if (found := _checkpoint(folder)) is not None]
    return sorted(known, key=lambda one: (one.run, one.step))


def runs(patterns: Sequence[str]) -> set[Path]:
    """The folders of trainings, with checkpoints or yet without."""
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
    except OSError:  # retention deletes it at this moment
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
    """When it was complete: by its manifest, which is written last; of a run without ours, by verl's
    tracker file, which names the last step that was saved to the end. None if it is not."""
    try:
        return read_manifest(folder).created
    except FileNotFoundError:
        pass
    except ValueError:  # damaged: the run moves it aside once it resumes
        return None
    try:
        last = int((folder.parent / TRACKER).read_text())
    except (FileNotFoundError, ValueError):
        return None
    if step_of(folder) > last:
        return None
    return max(file.stat().st_mtime for file in model.iterdir())


def _model(folder: Path) -> Path | None:
    """None in what retention has left of old checkpoints."""
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
    """Note a checkpoint in `out`, and keep its model there from retention: hard links cost nothing.

    Raises:
        FileNotFoundError: retention was faster.
    """
    target = held_model(checkpoint, out)
    if not target.exists():
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            shutil.copytree(checkpoint.model, partial, copy_function=os.link, ignore=_not_the_model)
            partial.rename(target)
        except shutil.Error as error:
            shutil.rmtree(partial, ignore_errors=True)
            if not checkpoint.model.exists():
                raise FileNotFoundError(checkpoint.model) from error
            # Another file system: it is evaluated where it is.
    fields = {name: str(value) for name, value in asdict(checkpoint).items()}
    fields |= {"step": checkpoint.step, "is_merged": checkpoint.is_merged}
    write_json(target.with_suffix(".json"), fields)


def held_in(out: Path) -> list[Checkpoint]:
    """What an earlier watch has noted and not evaluated; the checkpoints themselves may be gone."""
    found = [json.loads(file.read_text()) for file in sorted(out.glob("*_*.json"))]
    paths = ("folder", "run", "model")
    return [Checkpoint(**row | {name: Path(row[name]) for name in paths}) for row in found]


def held_model(checkpoint: Checkpoint, out: Path) -> Path:
    """Where `hold` keeps a model, if it can be kept."""
    return out / f"{checkpoint.key}.model"


def release(checkpoint: Checkpoint, out: Path) -> None:
    """Let go of a checkpoint that has been evaluated."""
    target = held_model(checkpoint, out)
    target.with_suffix(".json").unlink(missing_ok=True)
    for folder in (target, target.with_suffix(".merged")):
        shutil.rmtree(folder, ignore_errors=True)


def _not_the_model(_: str, names: list[str]) -> set[str]:
    return {name for name in names if _NOT_THE_MODEL.fullmatch(name)}


def merge_command(shards: Path, target: Path) -> list[str]:
    """verl's own merger of shards, as a process: only `verl_ext` may import verl."""
    backend = "fsdp" if (shards / "fsdp_config.json").exists() else "megatron"
    options = ["--backend", backend, "--local_dir", str(shards), "--target_dir", str(target)]
    return [sys.executable, "-m", "verl.model_merger", "merge", *options]
