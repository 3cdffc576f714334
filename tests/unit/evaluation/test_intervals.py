"""Intervals and tests are right as often as they say."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.evaluation.intervals import (
    bootstrap_interval,
    detectable,
    hierarchical_interval,
    holm,
    least_changes,
    mcnemar,
    paired_test,
    pass_at_k,
    rate_interval,
    side_interval,
    welch,
)


def test_the_interval_holds_the_mean_and_narrows_with_problems():
    rng = np.random.default_rng(1)
    few, many = rng.random(30), rng.random(3000)
    low, high = bootstrap_interval(few.tolist())
    narrow_low, narrow_high = bootstrap_interval(many.tolist(), n=2000)
    assert low < few.mean() < high
    assert narrow_high - narrow_low < (high - low) / 3


@pytest.mark.slow
@pytest.mark.soak  # a simulation
@pytest.mark.parametrize("rate", [0.01, 0.02, 0.3, 0.99])
@pytest.mark.parametrize("n", [40, 200])
def test_a_rate_s_interval_covers_near_the_ends_too(rate, n):
    rng = np.random.default_rng(4)
    chances = rng.beta(rate, 1 - rate, size=(400, n))
    bounds = [rate_interval(rates) for rates in rng.binomial(4, chances) / 4]
    assert sum(low <= rate <= high for low, high in bounds) >= 0.93 * 400


def test_a_rate_s_interval_narrows_with_samples_that_differ_within_problems():
    together, apart = [0.0] * 50 + [1.0] * 50, [0.25, 0.75] * 50
    low, high = rate_interval(together)
    assert (low, high) == pytest.approx((0.40, 0.60), abs=0.005)
    assert rate_interval(apart)[1] - rate_interval(apart)[0] < 0.6 * (high - low)
    assert rate_interval([0.5])[0] < 0.1 and rate_interval([0.5])[1] > 0.9
    assert rate_interval([0.0] * 20) == pytest.approx((0.0, 0.161), abs=0.001)  # Wilson's
    assert rate_interval([1.0] * 20) == pytest.approx((0.839, 1.0), abs=0.001)


def test_a_side_of_seeds_that_differ_has_a_wider_interval():
    rng = np.random.default_rng(5)
    equal = (rng.random((3, 200)) < 0.4).astype(float)
    differing = (rng.random((3, 200)) < [[0.3], [0.4], [0.5]]).astype(float)
    widths = [high - low for low, high in map(side_interval, (equal, differing))]
    assert widths[0] < widths[1]
    assert side_interval(equal[:1]) == rate_interval(equal[0])
    none = np.zeros((2, 20))
    assert side_interval(none) == pytest.approx(rate_interval(none[0])), "as of one seed"


def test_the_p_value_is_that_of_all_sign_flips():
    first, second = [0.9, 0.7, 0.8, 0.6, 0.5, 1.0], [0.4, 0.6, 0.5, 0.7, 0.1, 0.2]
    differences = np.subtract(first, second)
    flips = [abs(np.dot(s, differences)) for s in itertools.product((-1, 1), repeat=6)]
    exact = np.mean([flip >= abs(differences.sum()) - 1e-9 for flip in flips])
    test = paired_test(first, second, n=40_000)
    assert test.p_value == pytest.approx(exact, abs=0.01)
    assert test.delta == pytest.approx(differences.mean())
    assert test.low < test.delta < test.high
    assert test.n_problems == 6


def test_no_difference_is_no_evidence_and_a_large_one_is_never_certain():
    same = paired_test([0.5] * 20, [0.5] * 20)
    assert (same.delta, same.p_value) == (0.0, 1.0)
    clear = paired_test([1.0] * 60, [0.0] * 60)
    assert clear.p_value == pytest.approx(1 / 10_001)
    assert paired_test([0.0] * 60, [1.0] * 60).delta == -1.0


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([1.0], [1.0, 0.0]), ([float("nan")], [1.0])]
)
def test_nonsense_raises(first, second):
    with pytest.raises(ValueError, match=r"problem|rates"):
        paired_test(first, second)


SIZES = st.integers(1, 9).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))
)


@given(SIZES)
def test_pass_at_k_is_the_share_of_draws_that_hold_an_accepted_sample(size):
    n, c, k = size
    draws = [any(i < c for i in draw) for draw in itertools.combinations(range(n), k)]
    assert math.isclose(pass_at_k(n, c, k), sum(draws) / len(draws), abs_tol=1e-12)


@pytest.mark.parametrize("wrong", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_pass_at_k_of_nonsense_raises(wrong):
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(*wrong)


@pytest.mark.slow
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


@pytest.mark.slow
def test_holm_is_his_own_example():
    # Four tests: multiplied by 4, 3, 2, 1 in order of size, and never less than the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.slow
def test_welch_is_scipys_and_says_nothing_without_variation():
    from scipy import stats

    first, second = [0.5, 0.52, 0.49], [0.6, 0.58, 0.63]
    assert welch(first, second) == stats.ttest_ind(first, second, equal_var=False)[1]
    assert welch([0.5, 0.5], [0.6, 0.6]) is None


@pytest.mark.slow
@pytest.mark.soak  # a simulation
def test_a_difference_called_detectable_is_found_in_four_of_five_cases():
    rng = np.random.default_rng(2)
    n, spread = 200, 0.4
    true = detectable(spread / np.sqrt(n))
    drawn = rng.normal(true, spread, (4000, n))
    found = abs(drawn.mean(axis=1) / drawn.std(axis=1, ddof=1)) * np.sqrt(n) > 1.96
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)
    assert detectable(0.01, n_comparisons=10) > detectable(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("n_comparisons", [1, 2, 3, 8])
def test_fewer_changes_can_not_be_significant(n_comparisons):
    least, level = least_changes(n_comparisons), 0.05 / n_comparisons
    assert mcnemar(least, 0) <= level < mcnemar(least - 1, 0)


@pytest.mark.slow
def test_with_one_seed_the_interval_is_the_bootstrap_over_problems():
    rng = np.random.default_rng(3)
    first, second = rng.random((1, 50)), rng.random((1, 50))
    ours = hierarchical_interval(first, second)
    low, high = bootstrap_interval((second - first)[0].tolist())
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.01)
    assert ours.error == pytest.approx((second - first).std() / np.sqrt(50), rel=0.05)
    assert ours == hierarchical_interval(first, second)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"), [(np.zeros((1, 3)), np.zeros((1, 4))), (np.zeros((1, 0)),) * 2]
)
def test_sides_of_other_problems_raise(first, second):
    with pytest.raises(ValueError, match="problem"):
        hierarchical_interval(first, second)
