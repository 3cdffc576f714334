"""From a configuration to a grader that is ready to judge: the one place where the parts meet."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Protocol, Self

from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import (
    IN_ROOMS,
    CodeGrader,
    Grader,
    TaskEnvironment,
    harbor_identity,
    math_judge,
)
from coding_model_project.grading.cache import CachedGrader
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.limiter import CircuitBreaker, Limiter
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import ErrorType, GradedBy, Problem, Verdict

MAX_FAILURE_RATE = 0.2
"""The share of programs that the sandbox may fail to run before judging stops (`breaker`)."""


def make_sandbox(config: SandboxConfig) -> Sandbox:
    """The sandbox that `coding.sandbox` describes, not yet started.

    Raises:
        ConfigError: `coding.sandbox.name` is neither known nor an importable "module:Class", or
            what else it needs is missing.
    """
    name = config.name
    if name == "embedded":
        from coding_model_project.sandbox.embedded import EmbeddedSandbox

        return EmbeddedSandbox(
            workers=config.workers,
            min_tier=config.min_tier,
            preload=tuple(config.preload),
            python=config.python or sys.executable,
            share_processes=config.share_processes,
        )
    if name == "fusion":
        from coding_model_project.sandbox.fusion import FusionSandbox

        return FusionSandbox(
            config.urls,
            max_concurrency=config.max_concurrency,
            timeout_s=config.timeout_s,
            retry_s=config.retry_s,
            refresh_s=config.refresh_s,
        )
    module, _, attribute = name.partition(":")
    try:
        sandbox_class = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f'coding.sandbox.name={name}: neither "embedded" nor "fusion", and not importable as '
            f'"package.module:Class" ({error})'
        ) from error
    return sandbox_class(**config.kwargs)


class GraderByProblem:
    """The grader that each problem names (`Problem.graded_by`).

    An async context manager. Graders other than the one of tests are imported and started for the first
    problem that needs them: most judges see none. Harbor's belongs to a room above this one.

    Args:
        limiter: as of `ExecutionGrader`.
        breaker: as of `ExecutionGrader`.
        environment: where Harbor's tasks run.
    """

    def __init__(
        self,
        execution: ExecutionGrader,
        *,
        limiter: Limiter,
        breaker: CircuitBreaker | None = None,
        environment: TaskEnvironment = IN_ROOMS,
    ) -> None:
        self._execution, self._environment = execution, environment
        self._harbor = harbor_identity(environment.name)
        self._limiter, self._breaker = limiter, breaker
        self._others: dict[GradedBy, CodeGrader] = {}
        self._stack = AsyncExitStack()

    @property
    def identity(self) -> str:
        """All but code and problem that a verdict depends on."""
        return f"{self._execution.identity}+{self._harbor}+{math_judge()}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """See `grading.base.CodeGrader`."""
        grader = await self._grader(problem.graded_by)
        return await grader.grade_code(problem, code, extraction=extraction)

    def answered_from_memory(self) -> None:
        """See `grading.base.CodeGrader`."""
        self._execution.answered_from_memory()

    async def _grader(self, by: GradedBy) -> CodeGrader:
        if by is GradedBy.tests:
            return self._execution
        if by not in self._others:
            match by:
                case GradedBy.harbor:
                    make = resolve_name("coding_model_project.harbor.grader:HarborGrader")
                    grader = make(
                        limiter=self._limiter,
                        breaker=self._breaker,
                        environment=self._environment,
                    )
                case GradedBy.math:
                    from coding_model_project.grading.maths.grader import MathGrader

                    grader = MathGrader(breaker=self._breaker)
                case GradedBy.instructions:
                    from coding_model_project.grading.instructions.grader import InstructionsGrader

                    grader = InstructionsGrader()
                case GradedBy.prediction:
                    from coding_model_project.grading.predictions.grader import PredictionGrader

                    grader = PredictionGrader(self._execution)
                case GradedBy.harness:
                    from coding_model_project.grading.harness import HarnessGrader

                    grader = HarnessGrader(self._execution)
            self._others[by] = grader
            await self._stack.enter_async_context(grader)
        return self._others[by]


class AnyGrader(Grader, CodeGrader, Protocol):
    """Judges completions, and programs that were found already."""


@dataclass(frozen=True, slots=True)
class Graders:
    """Graders that share a sandbox: `hidden` tests earn rewards, `public` ones are shown in prompts."""

    hidden: AnyGrader
    public: AnyGrader

    async def passes_public(self, problem: Problem, verdict: Verdict) -> bool | None:
        """Return true if a judged program passes its problem's public tests; None if there are none.

        Programs without code or with a syntax error are not run for it: they fail.
        """
        if not problem.public_tests:
            return None
        if verdict.passed:
            return (
                True  # a program that passes all hidden tests and no public one is not looked for
            )
        if verdict.code is None or verdict.error is ErrorType.syntax_error:
            return False
        return (await self.public.grade_code(problem, verdict.code)).passed


def check_service(sandbox: SandboxConfig) -> None:
    """Make sure, before anything expensive starts, that a service which is to judge is there.

    The embedded sandbox is not tried: it starts on the nodes that train, maybe not on this one.

    Raises:
        ConfigError: what answers there is no SandboxFusion, or one that cannot be used.
        SandboxError: nothing answers.
    """

    async def start_and_stop() -> None:
        async with make_sandbox(sandbox):
            pass

    if sandbox.name == "fusion":
        asyncio.run(start_and_stop())


@asynccontextmanager
async def start_graders(
    sandbox: Sandbox,
    *,
    at_once: int,
    bare: bool = False,
    stop_early: bool = False,
    stop_on_timeout: bool = False,
    max_failure_rate: float = MAX_FAILURE_RATE,
    environment: TaskEnvironment = IN_ROOMS,
) -> AsyncIterator[Graders]:
    """Start a sandbox and the graders that share it; stop both on leaving.

    Args:
        at_once: programs judged at the same time. The others wait here and not in the sandbox, so that
            a verdict's judge_s is the time spent on it.
        bare: as of `CachedGrader`.
        stop_early: as of `ExecutionGrader`.
        stop_on_timeout: as of `ExecutionGrader`; for numbers that no policy learns from.
        max_failure_rate: of `CircuitBreaker`: an outage that outlasts every retry must not be waited
            for again by each of thousands of samples.
        environment: as of `GraderByProblem`.

    Raises:
        SandboxError: the sandbox does not start.
    """
    limiter = Limiter(at_once)
    breaker = CircuitBreaker(max_rate=max_failure_rate)
    async with sandbox:
        executed = ExecutionGrader(
            sandbox,
            stop_early=stop_early,
            stop_on_timeout=stop_on_timeout,
            limiter=limiter,
            breaker=breaker,
        )
        public = ExecutionGrader(
            sandbox, stop_early=True, public=True, limiter=limiter, breaker=breaker
        )
        by_problem = GraderByProblem(
            executed, limiter=limiter, breaker=breaker, environment=environment
        )
        async with by_problem as hidden:
            yield Graders(CachedGrader(hidden, bare=bare), CachedGrader(public, bare=bare))


class OpenJudge(Protocol):
    """Opens the graders of a configuration, here (`open_judge`) or on the nodes of a cluster."""

    def __call__(
        self,
        sandbox: SandboxConfig,
        *,
        style: PromptStyle,
        stop_early: bool,
        stop_on_timeout: bool = False,
    ) -> AbstractAsyncContextManager[Graders]: ...


@asynccontextmanager
async def open_judge(
    sandbox: SandboxConfig,
    *,
    style: PromptStyle,
    stop_early: bool,
    stop_on_timeout: bool = False,
    environment: TaskEnvironment = IN_ROOMS,
) -> AsyncIterator[Graders]:
    """Start the graders of a configuration; stop them on leaving.

    Args:
        style: of the prompts that completions answer.
        stop_early: as of `ExecutionGrader`. Sparse rewards need only know whether a program passes;
            for dense ones every hidden test runs, since stopping would bias the pass fraction.
        stop_on_timeout: as of `start_graders`.
        environment: as of `GraderByProblem`.
    """
    async with start_graders(
        make_sandbox(sandbox),
        at_once=programs_at_once(sandbox),
        bare=style is PromptStyle.bare,
        stop_early=stop_early,
        stop_on_timeout=stop_on_timeout,
        max_failure_rate=sandbox.max_failure_rate,
        environment=environment,
    ) as graders:
        yield graders


def programs_at_once(config: SandboxConfig) -> int:
    """Return how many programs a judge of this process runs together."""
    if config.name == "fusion":
        return config.max_concurrency
    return config.workers or len(os.sched_getaffinity(0))
