"""Loggers that survive a resume, and tables of samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from verl.utils import tracking

from coding_model_project.runs.rollouts import Rollout, end_last_line
from coding_model_project.verl_ext.trainers.trackers import start_trackers

_CELL_CHARACTERS = 4_000


class _AppendingFileLogger(tracking.FileLogger):
    """verl's file logger, but a resumed run appends to the file instead of truncating it.

    Steps between the last checkpoint and a kill appear twice; the later row counts.
    """

    def __init__(self, project_name: str, experiment_name: str) -> None:
        self.project_name, self.experiment_name = project_name, experiment_name
        self.filepath = os.environ["VERL_FILE_LOGGER_PATH"]
        end_last_line(Path(self.filepath))
        self.fp = open(self.filepath, "ab", buffering=0)  # noqa: SIM115 - `finish` closes it


def prepare_loggers(config: DictConfig) -> None:
    """Make verl's loggers append to metrics.jsonl, and start the trackers.

    Call it before verl creates its loggers, in the same process.
    """
    tracking.FileLogger = _AppendingFileLogger
    start_trackers(config)


_COLUMNS = ("problem", "verdict", "reward", "completion", "detail")


def log_samples(backends: dict[str, Any], samples: Sequence[Rollout], step: int) -> None:
    """Log a table of samples to W&B and TensorBoard, if they are among verl's tracking backends."""
    rows = [
        (
            sample.problem,
            sample.verdict["error"] or "accepted",
            sample.reward,
            sample.completion[:_CELL_CHARACTERS],
            sample.verdict["detail"],
        )
        for sample in samples
    ]
    if "wandb" in backends:
        import wandb

        table = wandb.Table(columns=list(_COLUMNS), data=[list(row) for row in rows])
        wandb.log({"samples": table}, step=step)
    if "tensorboard" in backends:
        backends["tensorboard"].writer.add_text("samples", _markdown(rows), step)


def _markdown(rows: Sequence[tuple[Any, ...]]) -> str:
    """Return one section per sample, since TensorBoard's tables drop the line breaks of code."""
    return "\n\n".join(
        f"**{problem}**: {verdict}, reward {reward:g} {detail}\n\n{_indented(completion)}"
        for problem, verdict, reward, completion, detail in rows
    )


def _indented(code: str) -> str:
    return "\n".join("    " + line for line in code.splitlines())
