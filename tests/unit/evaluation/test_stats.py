from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.errors import SandboxError
from coding_model_project.evaluation.intervals import (
    bootstrap_interval,
    paired_test,
    pass_at_k,
    rate_interval,
    side_interval,
    summarise,
)
from coding_model_project.types import ERROR_GROUPS, ErrorType, TestResult, Verdict


def test_the_interval_holds_the_mean_and_narrows_with_problems():
    rng = np.random.default_rng(1)
    few, many = rng.random(30), rng.random(3000)
    low, high = bootstrap_interval(few.tolist())
    narrow_low, narrow_high = bootstrap_interval(many.tolist(), n=2000)
    assert low < few.mean() < high
    assert narrow_high - narrow_low < (high - low) / 3


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


def verdict(error):
    results = () if error is ErrorType.no_code else (TestResult(error=error),)
    return Verdict(
        problem_id="fake/1",
        code=None if error is ErrorType.no_code else "x",
        extraction="bare_text",
        results=results,
        n_tests=1,
        comparison="tokens",
        sandbox="fake",
        grader_version="1",
        judge_s=0.5,
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


@given(st.lists(st.none() | st.sampled_from(ErrorType), min_size=1))
def test_shares_sum_to_one_over_what_was_graded(errors):
    down = SandboxError("down")
    down.judge_s = 2.0
    summary = summarise([*map(verdict, errors), down])
    assert summary.graded == len(errors)
    assert summary.ungradable == 1
    assert set(summary.errors) == set(ERROR_GROUPS)
    assert math.isclose(summary.accepted + sum(summary.errors.values()), 1.0)
    assert summary.judge_s == 0.5 * len(errors) + 2.0  # failures cost, too


def test_nothing_graded_is_no_score_of_anything():
    summary = summarise([SandboxError("down")])
    assert (summary.graded, summary.ungradable, summary.accepted) == (0, 1, 0.0)
