"""Checks of instructions that a program can verify: kinds of IFEval, IFBench and IFEvalG.

    follows("punctuation:no_comma", {}, "No comma here.")  # True

The rules are those behind the publishers' recorded verdicts (google-research's IFEval, IFBench as of
October 2025, and IFEvalG of open-instruct), including weak ones: a text without bullets follows
"format:sub-bullets". They differ only where those rules crash, draw at random or need a downloaded model;
such checks document it.

No check executes any part of a response, and each takes time linear in its length.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from coding_model_project.errors import DataError, UngradableError
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.instructions import custom, ifbench, ifeval
from coding_model_project.grading.instructions.arguments import arguments_of
from coding_model_project.grading.instructions.text import UnreadableResponse
from coding_model_project.types import ErrorType, Instruction, Problem, TestResult, Verdict

Check = Callable[..., bool]
"""A check of a non-blank response; its other parameters are the instruction's arguments (`arguments`)."""

KINDS: Mapping[str, Check] = {
    name.replace("__", ":").replace("sub_bullets", "sub-bullets"): check
    for module in (ifeval, ifbench, custom)
    for name, check in vars(module).items()
    if "__" in name.strip("_")
}
"""All kinds, by their publishers' names: a check is called like its kind, with `__` for `:`."""

_IN_ORDER: Mapping[Check, tuple[str, str]] = {
    ifeval.length_constraints__nth_paragraph_first_word: ("nth_paragraph", "num_paragraphs"),
    ifbench.count__word_count_range: ("min_words", "max_words"),
    ifeval.repeat__repeat_span: ("n_start", "n_end"),
    ifeval.new__copy_span_idx: ("n_start", "n_end"),
}
"""Arguments of which the first is at most the second."""

MAX_CHARS = 500_000
"""Maximum length of a response; a longer one follows no instruction. It keeps checks fast, and no model's
answer is that long."""


def check_arguments(kind: str, arguments: Mapping[str, Any]) -> None:
    """Validate an instruction before judging responses by it. Arguments that are None count as absent.

    Raises:
        DataError: the kind is unknown, or an argument is missing, unknown or wrong.
    """
    _read(kind, arguments)


def follows(kind: str, arguments: Mapping[str, Any], response: str) -> bool:
    """Return whether the response strictly follows the instruction. A blank response never does.

    Args:
        kind: one of `KINDS`.
        arguments: see `check_arguments`.
        response: a model's answer.

    Raises:
        DataError: see `check_arguments`.
        NotInstalledError: the kind needs a library that only the extra "instructions" installs.
        UngradableError: the check timed out because this machine is overloaded.
    """
    return _follows(*_read(kind, arguments), response)


def follows_loosely(kind: str, arguments: Mapping[str, Any], response: str) -> bool:
    """Return whether any of the response's eight variants follows the instruction.

    The variants omit the first line, the last line, both or neither, each with and without asterisks, so
    that "Sure, here it is:" or bold type does not fail a response. Arguments and errors: see `follows`.
    """
    read = _read(kind, arguments)
    return any(_follows(*read, variant) for variant in dict.fromkeys(_variants(response)))


def _read(name: str, arguments: Mapping[str, Any]) -> tuple[Check, dict[str, Any]]:
    """Return a kind's check, and the arguments converted for it, without those that are None.

    Raises:
        DataError: see `check_arguments`.
    """
    if name not in KINDS:
        near = get_close_matches(str(name), KINDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(KINDS))}"
        raise DataError(f"instruction kind {name!r:.60} is unknown{hint}")
    check = KINDS[name]
    taken = arguments_of(check)
    given = {key: value for key, value in arguments.items() if value is not None}
    unknown = [key for key in given if key not in taken]
    missing = [key for key in taken if key not in given]
    if unknown or missing:
        verb, keys = ("does not take", unknown) if unknown else ("needs", missing)
        takes = ", ".join(taken) or "none"
        raise DataError(f"instruction {name} {verb} {', '.join(map(str, keys))}; it takes {takes}")
    read = {}
    for key, argument in taken.items():
        try:
            read[key] = argument.validate_python(given[key])
        except ValidationError as error:
            value, (fault, *_) = f"{key}={given[key]!r:.60}", error.errors()
            raise DataError(f"instruction {name}: {value}: {fault['msg']}") from None
    low, high = _IN_ORDER.get(check, ("", ""))
    if low and read[low] > read[high]:
        raise DataError(f"instruction {name}: {low}={read[low]} is more than {high}={read[high]}")
    return check, read


def _follows(check: Check, arguments: Mapping[str, Any], response: str) -> bool:
    if len(response) > MAX_CHARS or not response.strip():
        return False
    try:
        return check(response, **arguments)
    except UnreadableResponse:
        return False
    except TimeoutError as error:  # NLTK limits each of its patterns to five seconds
        raise UngradableError(
            "NLTK timed out on a response; the machine is overloaded: lower the number of workers"
        ) from error


def _variants(response: str) -> Iterator[str]:
    if len(response) > MAX_CHARS:
        return
    lines = response.split("\n")
    shorter = ("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))
    for variant in (response, *shorter):
        yield variant
        yield variant.replace("*", "")


COMPARISON = "strict"


def check_instructions(problems: Iterable[Problem]) -> None:
    """Validate the instructions of problems.

    Raises:
        DataError: a kind is unknown, or its arguments do not fit; names the problem.
        NotInstalledError: a library for the checks is missing.
    """
    for problem in problems:
        for one in problem.instructions:
            try:
                check_arguments(one.kind, one.arguments)
            except DataError as error:
                raise DataError(f"problem {problem.id}: {error}") from error


class InstructionsGrader:
    """A grader of texts by `Problem.instructions`, without a sandbox.

    The strict rules decide a verdict. `Verdict.followed_loosely` counts the instructions that the text
    follows without its first or last line, or without "*".
    """

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge a text.

        Raises:
            DataError: an instruction of the problem is unknown, or its arguments do not fit.
        """
        if not problem.instructions:
            raise DataError(f"problem {problem.id} has no instructions")
        started = time.monotonic()
        results, loosely = (), 0
        if code is not None:
            results, loosely = await asyncio.to_thread(_judged, problem, code)
        return Verdict(
            problem_id=problem.id,
            code=code,
            extraction=extraction,
            results=results,
            n_tests=len(problem.instructions),
            comparison=COMPARISON,
            sandbox="none",
            grader_version=GRADER_VERSION,
            followed_loosely=loosely,
            judge_s=time.monotonic() - started,
        )


def _judged(problem: Problem, text: str) -> tuple[tuple[TestResult, ...], int]:
    """Return a result per instruction by the strict rules, and the number followed by the loose rules.

    Raises:
        DataError: an instruction is unknown, or its arguments do not fit; names the problem.
    """
    try:
        results = tuple(_result(one, text) for one in problem.instructions)
        loosely = sum(
            result.error is None or follows_loosely(one.kind, one.arguments, text)
            for one, result in zip(problem.instructions, results, strict=True)
        )
    except DataError as error:
        raise DataError(f"problem {problem.id}: {error}") from error
    return results, loosely


def _result(one: Instruction, text: str) -> TestResult:
    if follows(one.kind, one.arguments, text):
        return TestResult(error=None)
    return TestResult(error=ErrorType.wrong_answer, detail=f"does not follow {one.kind}")
