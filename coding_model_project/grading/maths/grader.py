"""The grader of maths problems, which compares a completion's final answer with the problem's.

Equal texts and equal plain numbers are equal. math-verify (sympy) compares all other answers, in its own
sandbox. `gsm8k_answer` judges problems with comparison "gsm8k", and gives GSM8K's a second reading.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Self

from coding_model_project.errors import DataError, SandboxError
from coding_model_project.extras import extra
from coding_model_project.grading.base import GRADER_VERSION, math_judge
from coding_model_project.grading.brief import shown_value
from coding_model_project.grading.maths import gsm8k_answer
from coding_model_project.grading.maths.final_answer import (
    AnswerRule,
    FinalAnswer,
    compared,
    final_answer,
    normal,
)
from coding_model_project.grading.retries import CircuitBreaker, Limiter, Retries
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import (
    Call,
    ErrorType,
    Execution,
    Limits,
    Problem,
    Program,
    Status,
    TestResult,
    Verdict,
)

LIMITS = Limits(cpu_s=3.0, wall_s=10.0, memory_mb=1024, output_kb=64)
"""Limits of one comparison; honest ones take well below a second."""

_AT_ONCE = 1
"""Maximum number of concurrent comparisons. Few answers need one, and each process with sympy takes about
100 MB."""

_PLAIN_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d{1,30})(?:\.\d{1,6})?")
_ONLY_FORMULA = re.compile(r"\$([^$]+)\$\.?|\\\((.+)\\\)\.?")
_DETAIL_BYTES = 500


def check_math_verify() -> None:
    """Check that the sandbox's process can import math-verify.

    Raises:
        NotInstalledError: it is not installed; names the command that installs it.
    """
    with extra("math"):
        import math_verify  # noqa: F401


def math_sandbox() -> Sandbox:
    """Create the sandbox for comparisons, one process of this machine, without starting it.

    It runs no program of a model, so resource limits suffice if the kernel offers no stronger isolation.

    Raises:
        NotInstalledError: see `check_math_verify`.
    """
    from coding_model_project.sandbox.embedded import EmbeddedSandbox

    check_math_verify()
    return EmbeddedSandbox(workers=_AT_ONCE, min_tier="rlimit", preload=("math_verify",))


class MathGrader:
    """A grader of final answers. An async context manager; its sandbox starts with the first comparison.

    Args:
        breaker: see `ExecutionGrader`.
        make_sandbox: a function that creates the sandbox.
    """

    def __init__(
        self,
        *,
        breaker: CircuitBreaker | None = None,
        make_sandbox: Callable[[], Sandbox] = math_sandbox,
    ) -> None:
        self._breaker = breaker
        self._make_sandbox = make_sandbox
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._retries: Retries | None = None
        self._readable: set[str] = set()
        """Gold answers that math-verify can parse."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._retries = None
        await self._stack.aclose()

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge a text by its final answer; the verdict's `code` is that answer.

        Raises:
            DataError: math-verify cannot parse the problem's own answer.
            SandboxError: the sandbox failed.
        """
        if problem.comparison == gsm8k_answer.GSM8K:
            return gsm8k_answer.verdict(problem, code)
        started = time.monotonic()
        found = None if code is None else final_answer(code)
        results = () if found is None else (await self._result(problem, found),)
        return Verdict(
            problem_id=problem.id,
            code=found.text if found else None,
            extraction=str(found.rule if found else AnswerRule.nothing),
            results=results,
            n_tests=1,
            comparison="math",
            sandbox=math_judge(),
            grader_version=GRADER_VERSION,
            judge_s=time.monotonic() - started,
            other_rules=gsm8k_answer.other_rules(problem, code)
            if problem.publisher == gsm8k_answer.LM_EVAL
            else None,
        )

    async def _result(self, problem: Problem, found: FinalAnswer) -> TestResult:
        gold = problem.answer
        if gold is None or not gold.strip():
            raise DataError(f"problem {problem.id} has no answer to compare with")
        found = _formula(found)
        known = same_text_or_number(gold, found)
        if known is None:
            return await self._compared(problem.id, gold, found)
        return TestResult(error=None) if known else _wrong(_expected(gold, found))

    async def _compared(self, problem_id: str, gold: str, found: FinalAnswer) -> TestResult:
        """Compare by math-verify. An answer that it cannot parse is wrong, if it can parse the gold one.

        If such an answer were ungradable, a policy could learn to evade judging.
        """
        ran = await self._run(gold, found)
        if ran.status is Status.finished:
            error = None if ran.value is True else ErrorType.wrong_answer
            detail = _expected(gold, found) if error else ""
            return TestResult(error=error, cpu_s=ran.cpu_s, detail=detail)
        if gold not in self._readable:
            own = await self._run(gold, FinalAnswer(gold, AnswerRule.boxed))
            if own.status is not Status.finished or own.value is not True:
                raise DataError(
                    f"problem {problem_id}: math-verify cannot parse its answer {gold!r:.200}"
                )
            self._readable.add(gold)
        return _wrong(f"{_expected(gold, found)}; the comparison ended by {ran.status}")

    async def _run(self, gold: str, found: FinalAnswer) -> Execution:
        retries = await self._started()
        boxed = found.rule is not AnswerRule.sentence
        ours, theirs = (normal(text) for text in (gold, found.text))
        call = Call("equal", (ours, theirs, boxed))
        ((ran, *_), _) = await retries.run(Program(source=_program()), [call], LIMITS, None)
        if ran.status is Status.killed:  # no answer can make its comparison end that way
            raise SandboxError(
                "the comparison of two answers was killed, and again when it ran alone"
            )
        return ran

    async def _started(self) -> Retries:
        """Start the sandbox on the first call.

        Raises:
            SandboxError: the sandbox does not start, or math-verify does not work in it.
        """
        async with self._starting:
            if self._retries is None:
                sandbox = self._make_sandbox()
                await self._stack.enter_async_context(sandbox)
                retries = Retries(sandbox, Limiter(_AT_ONCE), self._breaker)
                try:
                    await _check(retries)
                except BaseException:
                    await self._stack.aclose()
                    raise
                self._retries = retries
        return self._retries


async def _check(retries: Retries) -> None:
    """Check that math-verify works in its sandbox; otherwise it would reject every answer.

    It reports any failure to parse as unequal, even one caused by a missing module.

    Raises:
        SandboxError: it does not work.
    """
    call = Call("equal", (r"\frac{4}{8}", "1/2", True))
    (ran,), _ = await retries.run(Program(source=_program()), [call], LIMITS, None)
    if ran.status is not Status.finished or ran.value is not True:
        output = " ".join(ran.stderr_tail.split())[-300:] or ran.value
        raise SandboxError(
            f"math-verify finds 4/8 unequal to 1/2, {ran.status} in its sandbox: {output}"
        )


def same_text_or_number(gold: str, found: FinalAnswer) -> bool | None:
    """Compare as text or plain numbers; return None if that does not decide.

    Texts compare with each run of whitespace as one blank: "1 2" is not "12".
    """
    if found.is_cut_off:
        return False
    is_formula = found.rule is not AnswerRule.sentence
    known = compared(gold, found.text, is_formula=is_formula)
    if known is not None:
        return known
    ours, theirs = _number(normal(gold)), _number(normal(found.text))
    return None if ours is None or theirs is None else ours == theirs


def _formula(found: FinalAnswer) -> FinalAnswer:
    """Return the formula of a sentence that holds nothing else, as if it were in a box."""
    only = _ONLY_FORMULA.fullmatch(found.text)
    return FinalAnswer(only[1] or only[2], AnswerRule.boxed) if only else found


def _number(text: str) -> Decimal | None:
    text = text.removeprefix("\\$").removeprefix("$").removesuffix(".").removesuffix("$")
    return Decimal(text.replace(",", "")) if _PLAIN_NUMBER.fullmatch(text) else None


def _wrong(detail: str) -> TestResult:
    return TestResult(error=ErrorType.wrong_answer, detail=detail)


def _expected(gold: str, found: FinalAnswer) -> str:
    return (
        f"expected {shown_value(gold, _DETAIL_BYTES)}, got {shown_value(found.text, _DETAIL_BYTES)}"
    )


@cache
def _program() -> str:
    return Path(__file__).with_name("equal_answers.py").read_text("utf-8")
