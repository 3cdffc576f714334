"""Bounds of a training's metrics: an alarm for each step outside of one, and an end after several."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from coding_model_project.errors import TrainingError

_GUARDED = {
    "max_grad_norm": "actor/grad_norm",
    "min_entropy": "actor/entropy",
    "max_entropy": "actor/entropy",
    "max_mismatch": "rollout_corr/k3_kl",
}
"""Metrics by the key of `coding.training.guards` that bounds them."""


class Guards:
    """Counts, for each bound, the steps in a row that were outside of it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Take `coding.training.guards`."""
        self._bounds = {name: float(config[name]) for name in _GUARDED if config[name] is not None}
        self._patience = int(config["patience"])
        self._in_a_row = dict.fromkeys(self._bounds, 0)

    def check(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return `guard/<key>` for each bound: steps in a row outside of it, this one included.

        A bound whose metric is missing stays as it is. What is not a number is outside of every bound.
        """
        for name, bound in self._bounds.items():
            value = metrics.get(_GUARDED[name])
            if value is not None:
                inside = value >= bound if name.startswith("min_") else value <= bound
                self._in_a_row[name] = 0 if inside else self._in_a_row[name] + 1
        return {f"guard/{name}": float(n) for name, n in self._in_a_row.items()}

    def end(self, metrics: Mapping[str, float], step: int) -> None:
        """End a run that has been outside of a bound for too long.

        Raises:
            TrainingError: names the metric, the bound and the way out.
        """
        for name, n in self._in_a_row.items():
            if n < self._patience:
                continue
            metric = _GUARDED[name]
            side = "below" if name.startswith("min_") else "above"
            value = metrics.get(metric, math.nan)
            raise TrainingError(
                f"step {step}: {metric} is {value:.4g}, {side} coding.training.guards.{name}="
                f"{self._bounds[name]:g} for {n} steps in a row: the training is unstable; go on from an "
                "earlier checkpoint with a lower actor_rollout_ref.actor.optim.lr, or move the bound"
            )
