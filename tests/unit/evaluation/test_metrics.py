import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.errors import SandboxError
from coding_model_project.evaluation.statistics.pass_at_k import pass_at_k, rates, summarise
from coding_model_project.types import ERROR_GROUPS, ErrorType, TestResult, Verdict

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


def test_rates_by_problem():
    good, bad = verdict(None), verdict(ErrorType.timeout)
    assert rates([[good, bad], [bad, bad]]) == [0.5, 0.0]
    assert rates([[good, bad], [bad, bad]], k=2) == [1.0, 0.0]


@given(st.lists(st.none() | st.sampled_from(ErrorType), min_size=1))
def test_shares_sum_to_one_over_what_was_graded(errors):
    summary = summarise([verdict(error) for error in errors] + [SandboxError("down")])
    assert summary.graded == len(errors)
    assert summary.ungradable == 1
    assert set(summary.errors) == set(ERROR_GROUPS)
    assert math.isclose(summary.accepted + sum(summary.errors.values()), 1.0)
    assert summary.judge_s == 0.5 * len(errors)


def test_nothing_graded_is_no_score_of_anything():
    summary = summarise([SandboxError("down")])
    assert (summary.graded, summary.ungradable, summary.accepted) == (0, 1, 0.0)
