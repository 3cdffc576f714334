"""The tests and intervals of a comparison are right as often as they say."""

import itertools

import numpy as np
import pytest

from coding_model_project.evaluation.intervals import (
    bootstrap_interval,
    detectable,
    hierarchical_interval,
    holm,
    least_changes,
    mcnemar,
    welch,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (3, 3), (2, 9), (9, 2), (40, 21)])
def test_mcnemar_is_the_count_of_all_ways_to_toss(gained, lost):
    n, fewer = gained + lost, min(gained, lost)
    if n <= 12:
        tosses = [min(sum(t), n - sum(t)) for t in itertools.product((0, 1), repeat=n)]
        exact = np.mean([toss <= fewer for toss in tosses])
    else:  # as statsmodels does with exact=True
        from scipy import stats

        exact = min(1.0, 2 * stats.binom.cdf(fewer, n, 0.5))
    assert mcnemar(gained, lost) == pytest.approx(exact, abs=1e-12)


def test_holm_is_his_own_example():
    # Four tests: multiplied by 4, 3, 2, 1 in order of size, and never less than the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_welch_is_scipys_and_says_nothing_without_variation():
    from scipy import stats

    first, second = [0.5, 0.52, 0.49], [0.6, 0.58, 0.63]
    assert welch(first, second) == stats.ttest_ind(first, second, equal_var=False)[1]
    assert welch([0.5, 0.5], [0.6, 0.6]) is None


@pytest.mark.soak  # a simulation
def test_a_difference_called_detectable_is_found_in_four_of_five_cases():
    rng = np.random.default_rng(2)
    n, spread = 200, 0.4
    true = detectable(spread / np.sqrt(n))
    drawn = rng.normal(true, spread, (4000, n))
    found = abs(drawn.mean(axis=1) / drawn.std(axis=1, ddof=1)) * np.sqrt(n) > 1.96
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)
    assert detectable(0.01, n_comparisons=10) > detectable(0.01)


@pytest.mark.parametrize("n_comparisons", [1, 2, 3, 8])
def test_fewer_changes_can_not_be_significant(n_comparisons):
    least, level = least_changes(n_comparisons), 0.05 / n_comparisons
    assert mcnemar(least, 0) <= level < mcnemar(least - 1, 0)


def test_with_one_seed_the_interval_is_the_bootstrap_over_problems():
    rng = np.random.default_rng(3)
    first, second = rng.random((1, 50)), rng.random((1, 50))
    ours = hierarchical_interval(first, second)
    low, high = bootstrap_interval((second - first)[0].tolist())
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.01)
    assert ours.error == pytest.approx((second - first).std() / np.sqrt(50), rel=0.05)
    assert ours == hierarchical_interval(first, second)


@pytest.mark.soak  # a simulation
@pytest.mark.parametrize(("seeds", "seed_std", "samples"), [(3, 0.0, 1), (3, 0.05, 4), (5, 0.1, 4)])
def test_the_interval_over_seeds_covers_the_true_difference(seeds, seed_std, samples):
    """The difference is between methods: each side's seeds are draws with their own spread."""
    rng = np.random.default_rng(4)
    covered, n = 0, 250
    for _ in range(n):
        chance = 0.25 + 0.5 * rng.random(100)  # with room for seeds, so that nothing is cut off
        true_gain = 0.1 + rng.normal(0, 0.03, 100)
        rates = [
            rng.binomial(samples, np.clip(p + rng.normal(0, seed_std, (seeds, 1)), 0, 1)) / samples
            for p in (chance, chance + true_gain)
        ]
        interval = hierarchical_interval(*rates, n=300)
        covered += interval.low <= 0.1 <= interval.high
    assert covered / n >= 0.88


@pytest.mark.parametrize(
    ("first", "second"), [(np.zeros((1, 3)), np.zeros((1, 4))), (np.zeros((1, 0)),) * 2]
)
def test_nonsense_raises(first, second):
    with pytest.raises(ValueError, match="problem"):
        hierarchical_interval(first, second)
