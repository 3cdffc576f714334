"""The export of a checkpoint to Hugging Face's layout, with a model card.

A folder that already has this layout, such as a starting model, is exported too and gets a card.
"""

from __future__ import annotations

import glob
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.atomic import write_json, write_text
from coding_model_project.contained import copy_folder
from coding_model_project.errors import CheckpointError, ConfigError
from coding_model_project.evaluation.watch.found import Checkpoint, find, merge_command
from coding_model_project.handover.model_card import Measured, card, measured
from coding_model_project.runs.checkpoints import FOLDER
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.inputs import fingerprint
from coding_model_project.runs.starting_model import EXPORT_MARKER, correct_dtype, weight_entries

CARD = "README.md"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model to export."""

    model: Path
    """A folder in Hugging Face's layout, or of verl's shards."""
    is_merged: bool
    run: RunFolder | None
    """The run that trained it; None for a model without one."""
    step: int | None
    key: str
    """A fingerprint of the content: it changes if a resumed run rewrites the checkpoint."""

    @property
    def name(self) -> str:
        """The model's name, such as grpo_step_24."""
        if self.run is None or self.step is None:
            return self.model.resolve().name
        return f"{self.run.path.name}_step_{self.step}"

    @property
    def default_out(self) -> Path:
        if self.run is None:
            return Path("outputs") / "exports" / self.name
        return self.run.path / "exports" / f"global_step_{self.step}"


def source(path: Path) -> Source:
    """Return the model of a checkpoint, of a run (its last checkpoint), or of a model's folder.

    Raises:
        ConfigError: there is no model.
    """
    folder = next(
        (one for one in (path, *path.absolute().parents) if FOLDER.fullmatch(one.name)), path
    )
    found = find([glob.escape(str(folder))])
    if found:
        return _of_checkpoint(found[-1])
    if (path / "config.json").exists() and any(path.glob("*.safetensors")):
        key = " ".join(fingerprint(file) for file in sorted(path.glob("*.safetensors")))
        return Source(model=path, is_merged=True, run=None, step=None, key=key)
    if not path.exists():
        raise ConfigError(f"{path}: no such folder")
    raise ConfigError(
        f"{path}: no complete checkpoint, and no model (config.json with *.safetensors)"
    )


def latest(run: Path) -> Source:
    """Return the model of a run's last checkpoint.

    Raises:
        ConfigError: it has no complete checkpoint.
    """
    found = find([glob.escape(str(run))])
    if not found:
        raise ConfigError(f"{run}: no complete checkpoint")
    return _of_checkpoint(found[-1])


def _of_checkpoint(found: Checkpoint) -> Source:
    run = RunFolder(found.run)
    return Source(
        model=found.model,
        is_merged=found.is_merged,
        run=run if run.run_json.exists() else None,
        step=found.step,
        key=found.key,
    )


def export(given: Source, out: Path, evaluations: Sequence[Path], say: Say) -> Path:
    """Write the model and its card. If the folder already holds this model, only rewrite the card.

    Args:
        evaluations: folders of this model's evaluations, whose numbers the card shows.

    Returns:
        `out`.

    Raises:
        ConfigError: `out` holds something else, or an evaluation is of another model.
        CheckpointError: shards could not be merged, or the model lacks a tokenizer.
    """
    if out.exists() and any(out.iterdir()):
        _check_same(out, given)
    else:
        _write_model(given, out, say)
    shown: list[Measured] = [measured(path, out) for path in evaluations]
    write_text(out / CARD, card(given.name, given.run, given.step, out, shown))
    return out


def _check_same(out: Path, given: Source) -> None:
    file = out / EXPORT_MARKER
    if not file.exists() or json.loads(file.read_text())["key"] != given.key:
        raise ConfigError(f"--out={out}: holds something else; choose another folder")


def _write_model(given: Source, out: Path, say: Say) -> None:
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    if given.is_merged:
        wanted = shutil.ignore_patterns("*.bin", "*.pt", "*.md", ".git*")
        copy_folder(given.model, partial, ignore=wanted)
    else:
        say(f"merging the shards in {given.model}")
        _run(merge_command(given.model, partial))
    _complete(partial)
    write_json(partial / EXPORT_MARKER, {"name": given.name, "key": given.key})
    if out.exists():
        out.rmdir()  # empty
    partial.rename(out)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise CheckpointError(
            f"{' '.join(command[1:4])} failed with exit code {done.returncode}: "
            f"{lines[-1] if lines else 'no output'}"
        )


def _complete(model: Path) -> None:
    """Check that the model is complete, and correct the dtype in config.json.

    Raises:
        CheckpointError: weights or tokenizer are missing, or an adapter is not merged.
    """
    weights = weight_entries(model)
    if not weights:
        raise CheckpointError(f"{model}: it has no *.safetensors")
    if not any((model / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")):
        raise CheckpointError(f"{model}: it has no tokenizer")
    if any(".lora_" in name for name in weights):
        raise CheckpointError(f"{model}: its weights have an adapter that is not merged")
    correct_dtype(model)
