"""verl's own scorers, for rows that this package does not judge."""

from __future__ import annotations

from typing import Any

PROGRAMS = ("codecontests", "apps", "codeforces", "taco")
"""Data sources of programs. verl's scorer runs them without a sandbox, and gives 0 for tests that it
cannot read, so they are never left to it."""


def score_by_verl(data_source: str, answer: str, ground_truth: object, extra_info: Any) -> Any:
    """Return verl's own score: a number, or a mapping with `score`.

    Raises:
        NotImplementedError: verl has no scorer for this source.
        ImportError: verl is not installed.
    """
    from verl.utils.reward_score import default_compute_score

    return default_compute_score(data_source, answer, ground_truth, extra_info)
