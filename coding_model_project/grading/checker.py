"""Judging of outputs by a problem's own checker program, for problems with several right outputs.

The checker is trusted, but is confined like any program. It runs in its own processes after the
candidate has ended, so the candidate never sees the answers that the checker receives.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from coding_model_project.errors import CheckerError
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.types import (
    Checker,
    Execution,
    Files,
    Input,
    Limits,
    Program,
    Protocol,
    Status,
)

CHECKER = "checker"
"""`Problem.comparison` of problems with a checker."""

LIMITS = Limits(cpu_s=15.0, wall_s=60.0, memory_mb=1024, output_kb=256)
"""Limits of a checker, which may need more than the judged program."""

_REJECTIONS = {
    1: "wrong answer",
    2: "malformed",
    4: "trailing output",
    7: "partial",
    8: "too short",
}
"""Exit codes of testlib's rejections. Its 3 means that the checker or the answer is wrong."""

_SCORE = re.compile(r"[0-9]{1,20}(?:\.[0-9]{0,50})?(?:[eE][-+]?[0-9]{1,3})?")
"""A number as checkers print it."""

_CRASH_OF_PYTHON = "Traceback (most recent call last):"
"""The sign of an uncaught exception, which also exits with 1."""

Run = Callable[[Program, Sequence[Input], Limits, StopWhen | None], Awaitable[list[Execution]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A program's output on one input, and the author's answer."""

    input: str
    output: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A checker's decision on one output."""

    accepted: bool
    comment: str = ""


async def rule(
    run: Run, checker: Checker, outputs: Sequence[Output], *, stop_early: bool
) -> list[Ruling]:
    """Return the checker's ruling on each output, in order; up to the first rejection with `stop_early`.

    If a checker fails on an output but accepts the author's own answer, the output broke it, which is a
    rejection. If it were ungradable, a policy could learn to evade judging.

    Raises:
        CheckerError: it also fails on the author's answer: it crashes, times out or reports a failure.
        SandboxError: the checker could not run.
    """

    def rejected(_index: int, execution: Execution) -> bool:
        ruling = _ruling(checker, execution)
        return ruling is None or not ruling.accepted

    program = Program(source=checker.source, language=checker.language)
    inputs = [_files(checker.protocol, output) for output in outputs]
    executions = await run(program, inputs, LIMITS, rejected if stop_early else None)
    rulings = []
    for output, execution in zip(outputs, executions, strict=False):
        ruling = _ruling(checker, execution)
        if ruling is None:
            own = replace(output, output=output.answer)
            (of_own,) = await run(program, [_files(checker.protocol, own)], LIMITS, None)
            ruling_of_own = _ruling(checker, of_own)
            if ruling_of_own is None or not ruling_of_own.accepted:
                raise CheckerError(f"the problem's checker failed {_how(execution)}")
            ruling = Ruling(accepted=False, comment=f"the checker fails on this {_how(execution)}")
        rulings.append(ruling)
    return rulings


def _files(protocol: Protocol, given: Output) -> Files:
    if protocol is Protocol.score:
        order = {"input": given.input, "answer": given.answer, "output": given.output}
    else:
        order = {"input": given.input, "output": given.output, "answer": given.answer}
    return Files(contents=order)


def _ruling(checker: Checker, execution: Execution) -> Ruling | None:
    """Return the checker's ruling; None if the checker failed."""
    if execution.status not in (Status.finished, Status.raised):
        return None
    if _CRASH_OF_PYTHON in execution.stderr_tail:
        return None
    comment = (execution.stderr_tail or execution.stdout).strip()
    if checker.protocol is Protocol.score:
        score = _score(execution)
        if score is None:
            return None
        return Ruling(accepted=score >= 1, comment=f"the checker's score is {score:g}")
    if execution.exit_code == 0:
        return Ruling(accepted=True, comment=comment)
    if execution.exit_code in _REJECTIONS:
        return Ruling(accepted=False, comment=comment or _REJECTIONS[execution.exit_code])
    return None


def _how(execution: Execution) -> str:
    comment = (execution.stderr_tail or execution.stdout).strip()
    last_line = comment.splitlines()[-1][:300] if comment else "it printed nothing"
    return f"({execution.status}, exit code {execution.exit_code}): {last_line}"


def _score(execution: Execution) -> float | None:
    """Return the number from 0 to 1 that is a checker's whole output; None for any other output.

    A checker that repeats the judged output would otherwise let a program write its own score.
    """
    number = execution.stdout.strip()
    if execution.status is not Status.finished or not _SCORE.fullmatch(number):
        return None
    return score if (score := float(number)) <= 1 else None
