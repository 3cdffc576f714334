"""A run at a glance: metrics.jsonl by its loggers, one line, summary.json, and a view in a terminal."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_model_project.atomic import write_json
from coding_model_project.runs.folder import Attempt, RunFolder, State, plain_config, value_at
from coding_model_project.types import ERROR_GROUPS

if TYPE_CHECKING:
    from rich.console import RenderableType


def read_metrics(path: Path) -> dict[int, dict[str, float]]:
    """Read metrics by step; for a step repeated after a resume, the later values.

    A line truncated by a kill is skipped. Parts of a step that were logged separately (training, then
    validation) are merged.
    """
    steps: dict[int, dict[str, float]] = {}
    for row in _rows(path):
        numbers = {k: float(v) for k, v in row["data"].items() if isinstance(v, (int, float))}
        steps.setdefault(int(row["step"]), {}).update(numbers)
    return dict(sorted(steps.items()))


def total(path: Path, metric: str) -> float:
    """Sum a metric over all logged lines; a repeated step counts twice."""
    rows = _rows(path)
    return sum(float(row["data"][metric]) for row in rows if metric in row["data"])


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):  # truncated by a kill
            rows.append(json.loads(line))
    return rows


def series(steps: Mapping[int, dict[str, float]], metric: str) -> list[tuple[int, float]]:
    """Return a metric's values as (step, value) pairs."""
    return [(step, data[metric]) for step, data in steps.items() if metric in data]


_SHOWN = {"judge/accepted": "accepted", "train/loss": "loss", "val/loss": "val loss"}
_VALIDATION = re.compile(r"val-core/(.+)/acc/mean@\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A run at a glance."""

    run: RunFolder
    recipe: str
    state: State
    step: int
    steps: int | None
    """Configured number of steps; None if the number of epochs determines it."""
    result: str
    """The last values of the main logged metrics."""
    age_s: float
    """Seconds since the run's last write."""
    step_s: float | None
    """Median seconds of the last ten steps."""


def line(run: RunFolder) -> Line:
    """Read a run's line from its folder.

    Raises:
        ConfigError: this is not a run's folder.
    """
    steps = read_metrics(run.metrics)
    times = sorted(value for _, value in series(steps, "timing_s/step")[-10:])
    newest = max(file.stat().st_mtime for file in (run.run_json, run.metrics) if file.exists())
    return Line(
        run=run,
        recipe=run.provenance()["recipe"],
        state=run.state,
        step=max(steps, default=0),
        steps=value_at(plain_config(run.config), "trainer.total_training_steps"),
        result=_result(steps),
        age_s=time.time() - newest,
        step_s=times[len(times) // 2] if times else None,
    )


def _result(steps: dict[int, dict[str, float]]) -> str:
    found: dict[str, float] = {}
    for data in steps.values():
        for metric, value in data.items():
            source = _VALIDATION.fullmatch(metric)
            if name := _SHOWN.get(metric) or (source and source[1]):
                found[name] = value
    return ", ".join(f"{name} {value:.3f}" for name, value in found.items())


def duration(seconds: float) -> str:
    """Format seconds for people: 45 s, 12 min, 3.2 h, 5 d."""
    for unit, size, limit in (("s", 1, 90), ("min", 60, 5400), ("h", 3600, 2 * 86400)):
        if seconds < limit:
            digits = 1 if unit == "h" else 0
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds / 86400:.0f} d"


_TRAINED_TOKENS = ("rollout/trained_tokens", "train/global_tokens")
_LAST = ("judge/accepted", "critic/score/mean", "train/loss", "val/loss")


def write_summary(run: RunFolder) -> None:
    """Write `summary.json` from the run's logs."""
    write_json(run.summary, summarise(run))


def summarise(run: RunFolder) -> dict[str, Any]:
    """Summarise a run so far.

    Returns:
        recipe, steps; seconds: over all attempts; attempts: their number; tokens: generated and trained
        on; judge_s: sandbox wall seconds; last: final values of the main metrics, including all
        validation metrics.
    """
    steps = read_metrics(run.metrics)
    attempts = run.attempts()

    last: dict[str, float] = {}
    for data in steps.values():
        last |= {k: v for k, v in data.items() if k in _LAST or k.startswith("val-core/")}
    return {
        "recipe": run.provenance()["recipe"],
        "steps": max(steps, default=0),
        "attempts": len(attempts),
        "seconds": round(sum(_ended(run, a) - a.started for a in attempts), 1),
        "tokens": {
            "generated": int(total(run.metrics, "rollout/generated_tokens")),
            "trained": int(sum(total(run.metrics, metric) for metric in _TRAINED_TOKENS)),
        },
        "judge_s": round(total(run.metrics, "judge/seconds"), 2),
        "last": last,
    }


def _ended(run: RunFolder, attempt: Attempt) -> float:
    """Return an attempt's end in seconds since the epoch.

    It is now if the attempt runs, and its last write to the log if it was killed.
    """
    if attempt.ended is not None:
        return attempt.ended
    if attempt.state is State.running:
        return time.time()
    files = run.log_dir(attempt.number).iterdir()
    return max(attempt.started, *(file.stat().st_mtime for file in files))


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
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

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
