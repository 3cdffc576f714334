"""The live view of a run in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coding_model_project.runs.folder import RunFolder, State
from coding_model_project.runs.metrics_log import read_metrics, series
from coding_model_project.runs.run_lines import Line, duration, line
from coding_model_project.types import ERROR_GROUPS

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 40

_CURVES = {
    "accepted": "judge/accepted",
    **{str(group): f"judge/{group}" for group in ERROR_GROUPS},
    "infrastructure": "judge/infra_rate",
    "staleness": "training/off_policy/trajectory_staleness_worst/max",
    "evicted groups": "training/off_policy/evicted_samples",
    "public pass, hidden fail": "judge/public_pass_hidden_fail",
    "response tokens": "response_length/mean",
    "entropy": "actor/entropy",
    "train loss": "train/loss",
    "validation loss": "val/loss",
    "seconds per step": "timing_s/step",
    "of which waiting for rewards": "judge/wait_s",
}


def view(run: RunFolder) -> RenderableType:
    """Render a run's progress and curves, and its error if it has failed."""
    a = line(run)
    steps = read_metrics(run.metrics)
    head = Text(f"{run.path}  {a.recipe}  {a.state}  step {a.step}/{a.steps or '?'}{_left(a)}")
    curves = Table(box=None, pad_edge=False, show_header=False)
    for column in ("name", "last", "curve"):
        curves.add_column(column, justify="right" if column == "last" else "left")
    for name, metric in _CURVES.items():
        values = [value for _, value in series(steps, metric)]
        if values:
            curves.add_row(name, f"{values[-1]:.3f}", sparkline(values[-_WIDTH:]))
    bar = Table.grid()
    bar.add_row(ProgressBar(total=a.steps or None, completed=a.step, width=60))
    attempts = run.attempts()
    why = attempts[-1].error if attempts else None
    return Group(head, bar, curves, *([Text(why, style="red")] if why else []))


def _left(a: Line) -> str:
    if a.state is not State.running or not (a.step_s and a.steps):
        return ""
    return f", about {duration(a.step_s * (a.steps - a.step))} left"


def sparkline(values: Sequence[float]) -> str:
    """Render a curve in one line of text, scaled from its minimum to its maximum."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BLOCKS[round((value - low) / span * (len(_BLOCKS) - 1))] for value in values)
