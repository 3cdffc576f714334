"""Rewards: outcome, length, form and overlong answers."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.errors import ConfigError
from coding_model_project.grading.extract import extract
from coding_model_project.grading.kinds import KINDS
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.rewards import (
    LengthBonus,
    RewardConfig,
    RewardKind,
    ShapingConfig,
    reward_function,
)
from coding_model_project.grading.shaping import Answer, Shaping, length_factor, overlong, shaped
from coding_model_project.types import ErrorType, TestResult, Verdict
from tests.fakes import stdin_problem
from tests.tables import tables

CASES = tables("shaping")

SIZES = st.integers(0, 5000)
GOLD = "print(int(input()) + 1)"
PROBLEM = stdin_problem(("1", "2"), ("3", "4"), gold=(GOLD + " # a comment", GOLD + "\n"))
SWITCHES = [name for name, value in vars(ShapingConfig()).items() if value == 0]
OFF = Shaping(ShapingConfig(), style=PromptStyle.fenced, max_tokens=100)


def on(**keys):
    return replace(OFF, config=ShapingConfig(**keys))


GOLF = on(length_weight=0.5)


def fenced(code):
    return f"```python\n{code}\n```"


def verdict(errors, n_tests=None, code="x", extraction="bare_text"):
    return Verdict(
        problem_id=PROBLEM.id,
        code=code,
        extraction=extraction,
        results=tuple(TestResult(error=error) for error in errors),
        n_tests=n_tests or len(errors),
        comparison="tokens",
        sandbox="fake",
        grader_version="1",
    )


def judged(completion, *errors):
    found = extract(completion)
    return verdict(errors, len(PROBLEM.tests), found.code, str(found.rule))


def value(by, completion, *errors, kind=RewardKind.sparse, tokens=10):
    verdict = judged(completion, *errors)
    answer = Answer(completion=completion, tokens=tokens)
    return shaped(reward_function(kind)(PROBLEM, verdict), PROBLEM, verdict, answer, by)


@given(SIZES, SIZES, st.floats(0, 5), st.floats(1, 10))
def test_the_length_factor_is_bounded_and_never_rises_with_length(reference, size, weight, cap):
    factor = length_factor(reference, size, weight=weight, cap=cap)
    assert 1.0 <= factor <= 1.0 + weight * (cap - 1.0)
    assert length_factor(reference, size + 1, weight=weight, cap=cap) <= factor
    if size >= reference:
        assert factor == 1.0


@given(st.integers(0, 300), st.integers(1, 100))
def test_the_overlong_penalty_falls_in_a_line_through_the_buffer(tokens, buffer):
    penalty = overlong(tokens, max_tokens=200, buffer=buffer)
    assert -1.0 <= penalty <= 0.0
    assert overlong(tokens + 1, max_tokens=200, buffer=buffer) <= penalty
    assert (penalty == 0.0) == (tokens <= 200 - buffer)
    assert (penalty == -1.0) == (tokens >= 200)


ERRORS = st.lists(st.none() | st.sampled_from(ErrorType), min_size=2, max_size=2)


@given(
    ERRORS,
    st.text(max_size=80),
    st.integers(0, 120),
    st.sampled_from(RewardKind),
    st.sampled_from(LengthBonus),
    st.tuples(*[st.sampled_from([0.0, 0.3])] * 2, st.sampled_from([0, 20])),
)
def test_the_parts_sum_to_the_total_and_off_changes_nothing(
    errors, code, tokens, kind, bonus, weights
):
    length, form, buffer = weights
    by = on(length_weight=length, length_bonus=bonus, format_weight=form, overlong_buffer=buffer)
    found = value(by, fenced(code), *errors, kind=kind, tokens=tokens)
    assert found.total == pytest.approx(sum(found.parts.values()))
    assert -1.0 <= found.total <= 1.0 + 0.3 + 0.3
    assert {"length", "format", "overlong"} & found.parts.keys() == {
        name for name, on in (("length", length), ("format", form), ("overlong", buffer)) if on
    }
    if not any(weights):
        assert found == reward_function(kind)(PROBLEM, judged(fenced(code), *errors))


def test_every_key_that_is_off_by_default_turns_shaping_on():
    def on(**keys):
        reward = RewardConfig(shaping=ShapingConfig(**keys))
        return Shaping.of(reward, style=PromptStyle.fenced, max_tokens=10).on

    assert not on()
    assert all(on(**{name: 1}) for name in SWITCHES)


def test_every_key_that_is_off_by_default_is_a_part_that_a_page_explains():
    page = Path(__file__).parents[3] / "experiment_design" / "reward_design.md"
    parts = value(on(**dict.fromkeys(SWITCHES, 1)), fenced(GOLD), None, None).parts.keys()
    assert len(parts) == len(["outcome", *SWITCHES])
    assert [name for name in parts - {"outcome"} if f"| `{name}` |" not in page.read_text()] == []


def test_golf_puts_correctness_first_and_then_the_shorter_program():
    short, same, long = "print(2)", GOLD, GOLD + " # much longer than the reference"
    right = [value(GOLF, fenced(code), None, None).total for code in (short, same, long)]
    assert right == [1.5, 1.0, 1.0]  # as short as the cap pays for; as long as the shortest gold
    between = value(GOLF, fenced(GOLD[:-6]), None, None).total
    assert 1.0 < between < 1.5
    wrong = value(GOLF, fenced(short), None, ErrorType.wrong_answer)
    assert wrong.total == 0.0


def test_partial_scales_the_share_of_tests_passed():
    by = on(length_weight=0.5, length_bonus=LengthBonus.partial)
    half = value(by, fenced("print(2)"), None, ErrorType.wrong_answer, kind=RewardKind.dense)
    assert half.parts == {"outcome": 0.5, "length": 0.25}
    accepted = value(GOLF, fenced("print(2)"), None, ErrorType.timeout, kind=RewardKind.dense)
    assert accepted.parts["length"] == 0.0


def test_a_kind_that_asks_for_a_form_names_the_rule_that_finds_it():
    texts = {kind: one for kind, one in KINDS.items() if not kind.runs_program}
    assert [kind for kind, one in texts.items() if one.request(PROBLEM) and not one.form] == []


@pytest.mark.parametrize(("completion", "clean"), CASES["forms"])
def test_the_format_reward_is_for_exactly_one_block(completion, clean):
    by = on(format_weight=0.1)
    assert value(by, completion, None, None).parts["format"] == (0.1 if clean else 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"length_weight": -1.0},
        {"length_cap": 0.5},
        {"overlong_buffer": 101},
        {"length_bonus": LengthBonus.partial, "length_weight": 1.0},
    ],
)
def test_shaping_that_makes_no_sense_is_refused_by_its_key(wrong):
    usual = RewardConfig()
    assert Shaping.of(usual, style=PromptStyle.fenced, max_tokens=100) == OFF
    given = RewardConfig(shaping=ShapingConfig(**wrong))
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Shaping.of(given, style=PromptStyle.fenced, max_tokens=100)


@given(
    st.lists(st.none() | st.sampled_from(ErrorType), min_size=1, max_size=6),
    st.sampled_from(RewardKind),
)
def test_rewards_are_bounded_and_the_sum_of_their_parts(errors, kind):
    given_reward = reward_function(kind)(stdin_problem(), verdict(errors))
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
    assert reward_function("dense")(stdin_problem(), found).total == dense
    assert reward_function("sparse")(stdin_problem(), found).total == sparse


def squared(_problem, verdict):
    return verdict.pass_fraction**2


def without_a_number(_problem, verdict):
    return verdict.error


def test_a_users_function_is_a_reward_and_what_is_no_number_is_none():
    found = verdict([None, ErrorType.timeout])
    reward = reward_function(f"{__name__}:squared")(stdin_problem(), found)
    assert (reward.total, reward.parts) == (0.25, {"outcome": 0.25})
    for wrong in ("without_a_number", "SPENT"):
        with pytest.raises(ConfigError, match=f"coding.reward.kind={__name__}:{wrong}"):
            reward_function(f"{__name__}:{wrong}")(stdin_problem(), found)


SPENT = float("nan")
