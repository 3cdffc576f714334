"""Conclusions of a study, as its intervals and tests support them."""

from __future__ import annotations

from collections.abc import Iterator

from coding_model_project.evaluation.comparison import Pair
from coding_model_project.evaluation.comparison.paired import Comparison
from coding_model_project.evaluation.statistics.significance import ALPHA

LEAST_SEEDS = 3
"""Minimum seeds per side for a claim about a method (experiment_design/final_experiment_design.md)."""


def conclusions(n_done: int, n_members: int, comparison: Comparison) -> Iterator[str]:
    """Yield general caveats, then a conclusion per difference."""
    if n_done < n_members:
        yield f"{n_done} of {n_members} members have finished: this is no result yet."
    if descriptive(comparison):
        yield (
            f"Descriptive: this is said of these trainings and claimed of no others, which takes "
            f"{LEAST_SEEDS} seeds a side."
        )
    for pair in comparison.pairs:
        yield _conclusion(pair)


def descriptive(comparison: Comparison) -> str:
    """Return a "descriptive" label, or an empty text if there are enough seeds for a claim."""
    n_seeds = min(
        len(score.by_seed)
        for pair in comparison.pairs
        for score in (pair.first_score, pair.second_score)
    )
    if n_seeds >= LEAST_SEEDS:
        return ""
    return f" (descriptive: {n_seeds} seed{'s' if n_seeds > 1 else ''} a side)"


def _conclusion(pair: Pair) -> str:
    first, second, on = f"`{pair.first}`", f"`{pair.second}`", f"on {pair.dataset}"
    interval = f"{pair.delta:+.1%}, 95% interval {pair.low:+.1%} to {pair.high:+.1%}"
    how = "more" if pair.delta > 0 else "fewer"
    is_clear = pair.low > 0 or pair.high < 0
    is_significant = pair.corrected_p < ALPHA
    tested = f"p = {pair.corrected_p:.2g}"
    if is_clear and is_significant:
        return f"{second} solves {how} than {first} {on} ({interval}, {tested})."
    if is_clear:
        return (
            f"It stays open whether {second} solves {how} than {first} {on}: the interval leaves 0 out "
            f"({interval}), but the tests do not rule chance out ({tested})."
        )
    return (
        f"No difference between {second} and {first} is shown {on} ({interval}, {tested}); one smaller "
        f"than {pair.detectable:.1%} would mostly be missed."
    )
