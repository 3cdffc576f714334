"""Fakes that keep the protocols' promises, without processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coding_model_project.errors import SandboxError
from coding_model_project.grading.cache import CachedGrader
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.judge import GraderByProblem
from coding_model_project.grading.kinds import Parts
from coding_model_project.grading.retries import Limiter
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import (
    Execution,
    Input,
    Limits,
    Problem,
    Program,
    Status,
    Stdin,
    Test,
)

Answer = Callable[[str, Input], Execution]


def echo(source: str, given: Input) -> Execution:
    """A program whose source is its output."""
    return Execution(status=Status.finished, stdout=source)


@dataclass
class FakeSandbox:
    """A sandbox that answers by a function of source and input, and records its calls and `stop_when`."""

    answer: Answer = echo
    failures: int = 0
    """Number of next calls that fail as infrastructure does."""
    delay_s: float = 0.0
    identity: str = "fake/cpython-3.11"
    calls: list[tuple[str, list[Input]]] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    async def __aenter__(self) -> FakeSandbox:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: Callable[[int, Execution], bool] | None = None,
    ) -> list[Execution]:
        self.calls.append((program.source, list(inputs)))
        self.languages.append(program.language)
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self.running -= 1
        if self.failures:
            self.failures -= 1
            raise SandboxError("the fake is down")
        executions = []
        for index, given in enumerate(inputs):
            executions.append(self.answer(program.source, given))
            if stop_when is not None and stop_when(index, executions[-1]):
                break
        return executions


def judge_of(sandbox: Sandbox) -> CachedGrader:
    """Return a judge of every kind of problem."""
    limiter = Limiter(8)
    execution = ExecutionGrader(sandbox, stop_early=True, limiter=limiter)
    return CachedGrader(GraderByProblem(Parts(execution=execution, limiter=limiter)), bare=False)


def stdin_problem(*pairs: tuple[str, str], **fields) -> Problem:
    """A problem of hidden tests (input, expected output)."""
    tests = tuple(Test(input=Stdin(given), expected=expected) for given, expected in pairs)
    return Problem(**{"id": "fake/1", "split": "test", "statement": "?", "tests": tests} | fields)
