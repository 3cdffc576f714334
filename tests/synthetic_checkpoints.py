"""Checkpoints of trainings that hold no weights."""

import json
from pathlib import Path

from coding_model_project.runs.checkpoints import write_manifest


def checkpoint(
    run: Path, step: int, *, whole: bool = True, within: str = "actor/huggingface", **said: object
) -> Path:
    """Write a checkpoint.

    Args:
        whole: with the manifest that is written last.
        within: the folder of the model.
        said: what the model's config.json says besides its step.
    """
    folder = run / "checkpoints" / f"global_step_{step}"
    model = folder / within
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"step": step, **said}))
    (model / "model.safetensors").write_bytes(b"weights")
    if whole:
        write_manifest(folder)
    return folder
