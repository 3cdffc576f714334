import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.grading.rewards import RewardKind, reward
from coding_model_project.types import ErrorType, TestResult, Verdict
from tests.fakes import stdin_problem

ERRORS = st.lists(st.none() | st.sampled_from(ErrorType), min_size=1, max_size=6)


def verdict(errors, n_tests=None, code="x"):
    return Verdict(
        problem_id="fake/1",
        code=code,
        extraction="bare_text",
        results=tuple(TestResult(error=error) for error in errors),
        n_tests=n_tests or len(errors),
        comparison="tokens",
        sandbox="fake",
        grader_version="1",
    )


@given(ERRORS, st.sampled_from(RewardKind))
def test_rewards_are_bounded_and_the_sum_of_their_parts(errors, kind):
    given_reward = reward(kind)(stdin_problem(), verdict(errors))
    assert 0.0 <= given_reward.total <= 1.0
    assert given_reward.total == sum(given_reward.parts.values())
    assert (given_reward.total == 1.0) == (not any(errors))


@pytest.mark.parametrize(
    ("found", "dense", "sparse"),
    [
        (verdict([None, ErrorType.timeout]), 0.5, 0.0),
        (verdict([], 3, code=None), 0.0, 0.0),
        (verdict([None], 4), 0.25, 0.0),  # the others did not run
    ],
)
def test_dense_is_the_share_of_tests_and_sparse_all_or_nothing(found, dense, sparse):
    assert reward(RewardKind.dense)(stdin_problem(), found).total == dense
    assert reward(RewardKind.sparse)(stdin_problem(), found).total == sparse
