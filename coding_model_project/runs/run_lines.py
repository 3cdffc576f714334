"""A run in one line, for the list of runs and the live view."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from coding_model_project.runs.folder import RunFolder, State, plain_config, value_at
from coding_model_project.runs.metrics_log import read_metrics, series

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
