"""GSM8K's answers as lm-evaluation-harness reads and compares them (its task `gsm8k`, version 3).

strict-match takes the first number after "####", flexible-extract the last number of the text. A number
equals the expected one if they are the same text without "$", thousands' commas and a final ".".
"""

from __future__ import annotations

import re

from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.maths.final_answer import AnswerRule
from coding_model_project.types import ErrorType, Problem, TestResult, Verdict

GSM8K = "gsm8k"
"""`Problem.comparison` of problems that are judged by these rules instead of as mathematics."""

LM_EVAL = "lm_eval"
"""`Problem.publisher` of problems whose verdicts have these rules' decisions beside their own."""

STOPS = ("Question:", "</s>", "<|im_end|>")
"""Texts that end an answer; a base model goes on with another question."""

_STOP = re.compile("|".join(map(re.escape, STOPS)))
_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_FLEXIBLE = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")


def strict_match(text: str) -> str | None:
    """Return the first number after "####"; None without one."""
    found = _STRICT.search(_STOP.split(text, maxsplit=1)[0])
    return found and found[1]


def flexible_extract(text: str) -> str | None:
    """Return the last number of a text; None without one."""
    found = _FLEXIBLE.findall(_STOP.split(text, maxsplit=1)[0])
    return found[-1] if found else None


def same(expected: str, given: str | None) -> bool:
    """Return whether a number is the expected one."""
    return given is not None and _plain(given) == _plain(expected)


def other_rules(problem: Problem, text: str | None) -> dict[str, bool]:
    """Return whether each of lm-eval's two rules accepts a text, by its name."""
    read = {"strict-match": strict_match, "flexible-extract": flexible_extract}
    gold = problem.answer or ""
    return {name: text is not None and same(gold, find(text)) for name, find in read.items()}


def verdict(problem: Problem, text: str | None) -> Verdict:
    """Judge a text by strict-match."""
    gold = problem.answer or ""
    strict, last = (None, None) if text is None else (strict_match(text), flexible_extract(text))
    given = strict or last
    rule = AnswerRule.nothing if given is None else AnswerRule.sentence
    result = TestResult(error=None)
    if not same(gold, strict):
        got = strict or "no number after ####"
        result = TestResult(error=ErrorType.wrong_answer, detail=f"expected {gold}, got {got}")
    return Verdict(
        problem_id=problem.id,
        code=given,
        extraction=str(AnswerRule.hashes if strict else rule),
        results=() if given is None else (result,),
        n_tests=1,
        comparison=GSM8K,
        sandbox="none",
        grader_version=GRADER_VERSION,
        other_rules=other_rules(problem, text),
    )


def _plain(number: str) -> str:
    return number.strip().replace(",", "").replace("$", "").removesuffix(".")
