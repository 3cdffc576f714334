"""Simulate how often the interval of a rate holds the true rate, which should be in 95% of cases.

Draws evaluations of 20 to 500 problems whose chances differ little, much, or as in a mix of easy and
hard problems; rates from 0.2% to 99%; pass@1 of 1 to 8 samples, pass@4 of 8, and shares of tests.
Prints the least coverage over these. Exit code 1 if it is less than 93.5%. A minute on an idle core.

python -m tests.soak.intervals
"""

import itertools
import sys
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from coding_model_project.evaluation.intervals import pass_at_k, score_interval
from coding_model_project.progress import progress_bar

LEAST = 0.935
RATES = (0.002, 0.005, 0.01, 0.02, 0.1, 0.5, 0.9, 0.99)
PROBLEMS = (20, 50, 200, 500)
KINDS = {**{f"pass@1 of {n}": (n, 1) for n in (1, 2, 4, 8)}, "pass@4 of 8": (8, 4), "tests": None}
"""Samples per problem and k; None for shares of tests, which are taken to equal the chances."""

EVALUATIONS = 4_000

Floats = NDArray[np.float64]


def chances(rng: np.random.Generator, kind: str, rate: float, shape: tuple[int, ...]) -> Floats:
    """Return problems' chances to be solved, with mean `rate`."""
    if kind == "mixed":  # each problem a tenth as likely to be solved as the mean, or ten times
        low = min(rate, 1 - rate) / 10
        high = min(0.9, 100 * low)
        is_high = rng.random(shape) < (10 * low - low) / (high - low)
        drawn = np.where(is_high, high, low)
        return drawn if rate <= 0.5 else 1 - drawn
    size = {"alike": 20.0, "different": 1.0}[kind]
    return rng.beta(rate * size, (1 - rate) * size, size=shape)


def share_held(intervals: Iterable[tuple[float, float]], truth: float) -> float:
    """Return the share of intervals that hold the true rate."""
    return float(np.mean([low <= truth <= high for low, high in intervals]))


def main() -> int:
    """Print a row per rate and number of problems."""
    rng = np.random.default_rng(0)
    least = 1.0
    print(f"{'rate':>6} {'problems':>8} {'held':>6}  least for")
    with progress_bar("rates", len(RATES) * len(PROBLEMS)) as advance:
        for rate, n in itertools.product(RATES, PROBLEMS):
            now: list[tuple[float, str]] = []
            for spread, kind in itertools.product(("alike", "different", "mixed"), KINDS):
                found, truth = chances(rng, spread, rate, (EVALUATIONS, n)), rate
                if sampled := KINDS[kind]:
                    n_samples, k = sampled
                    known = [pass_at_k(n_samples, c, k) for c in range(n_samples + 1)]
                    found = np.array(known)[rng.binomial(n_samples, found)]
                    many = chances(rng, spread, rate, (300_000,))
                    truth = rate if k == 1 else float((1 - (1 - many) ** k).mean())
                means, variances = found.mean(axis=1), found.var(axis=1, ddof=1) / n
                scores = zip(means.tolist(), variances.tolist(), strict=True)
                held = share_held((score_interval(*one, n) for one in scores), truth)
                now.append((held, f"{kind}, problems {spread}"))
            held, where = min(now)
            least = min(least, held)
            print(f"{rate:>6.1%} {n:>8} {held:>6.1%}  {where}", flush=True)
            advance()
    print(f"least coverage {least:.1%}, allowed {LEAST:.1%}")
    return int(least < LEAST)


if __name__ == "__main__":
    sys.exit(main())
