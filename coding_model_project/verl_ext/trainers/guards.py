"""Bounds on a training's metrics, with a count of steps outside of each; several in a row end the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from coding_model_project.errors import TrainingError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import ErrorType

_GUARDED = {
    "max_grad_norm": "actor/grad_norm",
    "min_entropy": "actor/entropy",
    "max_entropy": "actor/entropy",
}
"""Metrics by their key in `coding.training.guards`."""


class Guards:
    """A count, for each bound, of the latest steps in a row outside of it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Read `coding.training.guards`."""
        self._bounds = {name: float(config[name]) for name in _GUARDED if config[name] is not None}
        self._patience = int(config["patience"])
        self._in_a_row = dict.fromkeys(self._bounds, 0)

    def check(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return `guard/<key>` for each bound: the number of steps in a row outside of it, with this one.

        A missing metric leaves its count unchanged. NaN is outside of every bound.
        """
        for name, bound in self._bounds.items():
            value = metrics.get(_GUARDED[name])
            if value is not None:
                inside = value >= bound if name.startswith("min_") else value <= bound
                self._in_a_row[name] = 0 if inside else self._in_a_row[name] + 1
        return {f"guard/{name}": float(n) for name, n in self._in_a_row.items()}

    def end(self, metrics: Mapping[str, float], step: int) -> None:
        """End the run if a metric has been outside of its bound for too many steps.

        Raises:
            TrainingError: names the metric, the bound and the fix.
        """
        for name, n in self._in_a_row.items():
            if n < self._patience:
                continue
            metric = _GUARDED[name]
            side = "below" if name.startswith("min_") else "above"
            value = metrics.get(metric, math.nan)
            raise TrainingError(
                f"step {step}: {metric} is {value:.4g}, {side} coding.training.guards.{name}="
                f"{self._bounds[name]:g} for {n} steps in a row: the training is unstable; resume from "
                "an earlier checkpoint with a lower actor_rollout_ref.actor.optim.lr, or change the bound"
            )


def no_program(metrics: Mapping[str, float], style: str) -> str | None:
    """Return a warning if no response of a step holds a program, so that its gradient is 0.

    Args:
        metrics: the step's metrics.
        style: `coding.prompt`.
    """
    if metrics.get(f"judge/{ErrorType.no_code}", 0.0) < 1.0:
        return None
    other = next(one for one in PromptStyle if one != style)
    return (
        f"warning: coding.prompt={style}: no response of the first step holds a program (no_code), so "
        f"nothing is learned; the likely cause is rows whose prompts ask for another style: make them by "
        f"`data rows --prompt {style}`, or set coding.prompt={other}"
    )
