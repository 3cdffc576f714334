"""Maths problems: extraction of a text's answer, and its comparison with the expected one."""

import asyncio
import gzip
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.errors import DataError, SandboxError
from coding_model_project.grading.maths import grader as maths_grader
from coding_model_project.grading.maths.final_answer import (
    MAX_CHARACTERS,
    AnswerRule,
    FinalAnswer,
    final_answer,
)
from coding_model_project.grading.maths.grader import MathGrader, same_text_or_number
from coding_model_project.types import ErrorType, Execution, Problem, Status, Verdict
from tests.fakes import FakeSandbox
from tests.tables import tables

CASES = tables("maths")

pytestmark = pytest.mark.xdist_group("maths")  # whose process starts once


def problem(answer: str) -> Problem:
    return Problem(
        id="sums/1", split="train", statement="?", tests=(), answer=answer, language="text"
    )


def judged(answer: str, *completions: str, **fields: str) -> list[Verdict]:
    given = replace(problem(answer), **fields)

    async def judge() -> list[Verdict]:
        async with MathGrader() as grader:
            return [await grader.grade_code(given, one) for one in completions]

    return asyncio.run(judge())


@pytest.fixture(scope="module")
async def any_maths() -> AsyncIterator[MathGrader]:
    """A grader whose process has imported what it compares with, which takes seconds."""
    async with MathGrader() as grader:
        await grader.grade_code(problem("1/2"), r"\boxed{0.5}")
        yield grader


FOUND = CASES["found"]


@pytest.mark.parametrize("case", FOUND)
def test_the_final_answer_of_a_text(case):
    text, answer, rule = FOUND[case]
    assert final_answer(text) == FinalAnswer(answer, rule)


@pytest.mark.parametrize("text", ["", " \n", "x" * (MAX_CHARACTERS + 1)])
def test_a_text_without_an_answer_that_can_be_compared(text):
    assert final_answer(text) is None


@given(st.text())
def test_any_text_has_an_answer_or_none(text):
    found = final_answer(text)
    assert found is None or 0 < len(found.text) <= MAX_CHARACTERS


@pytest.mark.parametrize("unit", CASES["units"])
def test_the_search_takes_linear_time(unit):
    started = time.process_time()
    final_answer(unit * (1_000_000 // len(unit)))
    assert time.process_time() - started < 5


def test_a_verdict_names_answer_rule_and_judge():
    right, wrong, none = judged("42", "#### 42", "#### 41", "")
    assert (right.passed, right.code) == (True, "42")
    assert (right.extraction, right.comparison) == ("hashes", "math")
    assert right.sandbox.startswith("math-verify ")
    assert wrong.error is ErrorType.wrong_answer and "'41'" in wrong.results[0].detail
    assert (none.error, none.code, none.extraction) == (ErrorType.no_code, None, "nothing")


@pytest.mark.parametrize(("text", "strict", "flexible"), CASES["gsm8k"])
def test_lm_evals_rules_for_gsm8k(text, strict, flexible):
    (verdict,) = judged("1,200", text, comparison="gsm8k")
    assert verdict.passed is strict
    assert verdict.other_rules == {"strict-match": strict, "flexible-extract": flexible}


def test_gsm8k_has_lm_evals_rules_beside_the_mathematical_one():
    boxed, hashes = judged("18", "\\boxed{18} of 20", "#### 18", publisher="lm_eval")
    assert (boxed.passed, hashes.passed) == (True, True)
    assert boxed.other_rules == {"strict-match": False, "flexible-extract": False}
    assert hashes.other_rules == {"strict-match": True, "flexible-extract": True}
    (other,) = judged("18", "#### 18")
    assert other.other_rules is None


def test_a_problem_without_an_answer_is_unusable():
    with pytest.raises(DataError, match="no answer to compare with"):
        judged(" ", "#### 1")


def test_a_math_verify_that_does_not_work_is_no_wrong_answer():
    """math-verify reports any failure to parse as unequal, so every answer would be wrong."""
    broken = FakeSandbox(lambda *_: Execution(status=Status.finished, value=False))

    async def body():
        async with MathGrader(make_sandbox=lambda: broken) as grader:
            await grader.grade_code(problem("1/2"), r"\boxed{0.5 + 0}")

    with pytest.raises(SandboxError, match="4/8 unequal to 1/2"):
        asyncio.run(body())


@pytest.mark.sandbox
async def test_equal_by_mathematics(any_maths):
    for gold, completions in CASES["equal"].items():
        found = [await any_maths.grade_code(problem(gold), one) for one in completions]
        assert [one.passed for one in found] == [True] * len(completions), gold


@pytest.mark.sandbox
async def test_guesses_lists_and_floods_earn_nothing(any_maths, monkeypatch):
    brief = replace(maths_grader.LIMITS, cpu_s=0.5)
    monkeypatch.setattr(maths_grader, "LIMITS", brief)
    hostile = CASES["hostile"]
    found = [await any_maths.grade_code(problem("42"), one) for one in hostile]
    assert [one.passed for one in found] == [False] * len(hostile)


@pytest.mark.slow
@pytest.mark.parametrize("gold", ["7", "8", "78", "15", "56"])
def test_values_side_by_side_are_no_single_value(gold):
    from coding_model_project.grading.maths.equal_answers import equal

    texts = CASES["side by side"]
    assert [text for text in texts if equal(gold, text, True)] == []
    assert [text for text in texts if equal(gold, f"${text}$.", False)] == []


def test_one_value_with_blanks_or_signs_is_that_value():
    from coding_model_project.grading.maths.equal_answers import equal

    for gold, same in CASES["one value"].items():
        assert [one for one in same if not equal(gold, one, True)] == [], gold


NOTATIONS = CASES["notations"]
"""Expected answers, with equal and unequal ones: the content of a box, or a whole text."""


@pytest.mark.parametrize("gold", NOTATIONS)
def test_notations_of_one_value_are_equal_and_those_of_others_are_not(gold):
    def same(text: str) -> bool:
        return is_right(gold, text if text.startswith(("#", "It", "The")) else f"\\boxed{{{text}}}")

    equals, others = NOTATIONS[gold]
    assert ([text for text in equals if not same(text)], list(filter(same, others))) == ([], [])


@pytest.mark.parametrize(
    "text", [r"\boxed{4", r"The answer is $\boxed{\frac{8}{2}", r"4, or \boxed{4"]
)
def test_a_box_that_was_cut_off_is_wrong(text):
    assert not is_right("4", text)
    assert not is_right("42", text)


def is_right(gold: str, text: str) -> bool:
    """Judge a text as `MathGrader` does, but in this process."""
    from coding_model_project.grading.maths.equal_answers import equal
    from coding_model_project.grading.maths.final_answer import normal

    if (found := final_answer(text)) is None:
        return False
    known = same_text_or_number(gold, found)
    boxed = found.rule is not AnswerRule.sentence
    return equal(normal(gold), normal(found.text), boxed) if known is None else known


LABELLED = Path(__file__).parents[2] / "frozen" / "maths_answers.jsonl.gz"
"""Answers, with the verdicts of five other graders and `right`, a label by hand; null is open."""

STILL_WRONG = {("2ab", r"The answer is $\boxed{2ba}$.")}  # math-verify takes "ba" for a unit


@pytest.mark.slow
def test_labelled_answers_get_their_label_more_often_than_by_any_other_grader():
    rows = [json.loads(line) for line in gzip.decompress(LABELLED.read_bytes()).splitlines()]
    rows = [row for row in rows if row["right"] is not None]
    wrong = {
        (row["gold"], row["answer"])
        for row in rows
        if is_right(row["gold"], row["answer"].rpartition("</think>")[2]) is not row["right"]
    }
    assert wrong == STILL_WRONG
    others = ("math_verify", "prime_math", "minerva_boxed", "hendrycks", "math_dapo")
    right = {name: sum(row[name] is row["right"] for row in rows) for name in others}
    page = (Path(__file__).parents[3] / "docs" / "grading.md").read_text()
    (told,) = re.findall(r"Of (\d+) labelled answers,([^.]+)\.", page)
    counts = [int(n) for n in (told[0], *re.findall(r"\d+", told[1]))]
    assert counts == [len(rows), len(rows) - len(wrong), *right.values()]


@pytest.mark.sandbox
async def test_numbers_compare_as_math_verify_compares_them(any_maths):
    """The short way for plain numbers against the long one."""
    numbers = ["0", "-7", "1,200", "1200.0", "0.333333", "0.333334", "99999999999"]

    for gold, text in combinations_with_replacement(numbers, 2):
        given = FinalAnswer(text, AnswerRule.boxed)
        found = (await any_maths._compared("p", gold, given)).error is None
        assert same_text_or_number(gold, given) is found, (gold, text)
