"""Instruction-following problems: a result per instruction, and the publisher's recorded verdicts."""

import asyncio

import pytest

from coding_model_project.errors import DataError
from coding_model_project.grading.cache import CachedGrader
from coding_model_project.grading.extract import Rule
from coding_model_project.grading.instructions.grader import InstructionsGrader, check_instructions
from coding_model_project.types import ErrorType, Instruction, Problem

NO_COMMA = Instruction("punctuation:no_comma")
LOWERCASE = Instruction("change_case:english_lowercase")


def problem(*instructions: Instruction) -> Problem:
    return Problem(
        id="rules/1", split="train", statement="Write.", tests=(),
        instructions=instructions, language="text",
    )  # fmt: skip


def graded(given: Problem, completion: str):
    grader = CachedGrader(InstructionsGrader(), bare=False)
    return asyncio.run(grader.grade(given, completion))


def test_each_instruction_has_its_result_and_all_must_be_followed():
    both = problem(NO_COMMA, LOWERCASE)
    verdict = graded(both, "all of it is lower case")
    assert (verdict.passed, verdict.extraction) == (True, Rule.whole_text)
    verdict = graded(both, "No comma here")
    assert (verdict.passed, verdict.pass_fraction) == (False, 0.5)
    assert verdict.error is ErrorType.wrong_answer
    assert verdict.results[1].detail == "does not follow change_case:english_lowercase"


def test_reasoning_is_no_part_of_the_text():
    assert graded(problem(NO_COMMA), "<think>well, now</think>no comma").passed
    assert graded(problem(NO_COMMA), "<think>well, it never ends").error is ErrorType.no_code
    assert graded(problem(NO_COMMA), " \n").error is ErrorType.no_code


def test_loose_accuracy_leaves_out_a_first_line():
    verdict = graded(problem(NO_COMMA, LOWERCASE), "Sure, here:\nno comma and No capital")
    assert (verdict.passed, verdict.loose_passed) == (False, False)
    assert (verdict.pass_fraction, verdict.followed_loosely) == (0.0, 1)
    verdict = graded(problem(NO_COMMA), "Sure, here:\nno comma")
    assert (verdict.passed, verdict.loose_passed) == (False, True)
    assert graded(problem(NO_COMMA), "<think>never ends").loose_passed is False


def test_an_unknown_instruction_is_unusable_and_the_nearest_is_named():
    wrong = problem(Instruction("punctuation:no_coma"))
    with pytest.raises(DataError, match=r"rules/1: .*punctuation:no_comma"):
        graded(wrong, "x")
    with pytest.raises(DataError, match=r"rules/1"):
        check_instructions([wrong])
