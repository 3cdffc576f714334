"""verl's own scorers, for rows that this package does not judge (`integrations.verl`)."""

from __future__ import annotations

from verl.utils.reward_score import default_compute_score

__all__ = ["default_compute_score"]
