"""Construction of a ready grader from a configuration: the only place that combines the parts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from coding_model_project.config_key import named_callable
from coding_model_project.control_groups import usable_cores
from coding_model_project.grading.base import (
    DEFAULT_ENVIRONMENT,
    AnswerGrader,
    CodeGrader,
    Grader,
    TaskEnvironment,
    TaskGraders,
    harbor_identity,
    math_judge,
)
from coding_model_project.grading.cache import CachedGrader
from coding_model_project.grading.execution import SPENT, ExecutionGrader
from coding_model_project.grading.kinds import KINDS, Parts
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.retries import CircuitBreaker, limiter_of
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import ErrorType, GradedBy, Problem, Verdict

if TYPE_CHECKING:
    from coding_model_project.sandbox.fusion import FusionSandbox

MAX_FAILURE_RATE = 0.2
"""The share of sandbox failures above which judging stops (`CircuitBreaker`)."""


@dataclass(frozen=True, slots=True)
class BackEnd:
    """A sandbox that `coding.sandbox.name` selects."""

    make: Callable[[SandboxConfig], Sandbox]
    """Makes it, without starting it."""
    at_once: Callable[[SandboxConfig], int] = lambda config: config.workers or usable_cores()
    """Returns the number of programs that a judge in this process runs concurrently."""
    is_service: bool = False
    """True if it runs elsewhere, so that a run checks first that it answers."""


def _embedded(config: SandboxConfig) -> Sandbox:
    from coding_model_project.sandbox.embedded import EmbeddedSandbox

    embedded = EmbeddedSandbox(
        workers=config.workers,
        min_tier=config.min_tier,
        preload=tuple(config.preload),
        python=config.python or sys.executable,
    )
    if not config.urls:
        return embedded
    from coding_model_project.sandbox.fusion.other_languages import WithServers

    return WithServers(embedded, _servers(config))


def _servers(config: SandboxConfig) -> FusionSandbox:
    from coding_model_project.sandbox.fusion import FusionSandbox

    return FusionSandbox(
        config.urls,
        max_concurrency=config.max_concurrency,
        timeout_s=config.timeout_s,
        retry_s=config.retry_s,
        refresh_s=config.refresh_s,
    )


BACK_ENDS = {
    "embedded": BackEnd(_embedded),
    "fusion": BackEnd(_servers, at_once=lambda config: config.max_concurrency, is_service=True),
}
"""The sandboxes of this package by name."""


def back_end(name: str) -> BackEnd:
    """Return the sandbox of a name: one of `BACK_ENDS`, or a class as "package.module:Class".

    Raises:
        ConfigError: it is neither.
    """
    if name in BACK_ENDS:
        return BACK_ENDS[name]
    known = f"{', '.join(BACK_ENDS)} or package.module:Class"
    sandbox_class = named_callable("coding.sandbox.name", name, known)
    return BackEnd(lambda config: sandbox_class(**config.kwargs))


def make_sandbox(config: SandboxConfig) -> Sandbox:
    """Create the sandbox that `coding.sandbox` describes, without starting it.

    Raises:
        ConfigError: `coding.sandbox.name` is unknown, or another required key is missing.
    """
    return back_end(config.name).make(config)


class GraderByProblem:
    """A grader that dispatches to the grader of each problem (`Problem.graded_by`).

    An async context manager. Graders other than the one for tests are imported and started for the first
    problem that needs them, since most judges never do.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._started: dict[GradedBy, AnswerGrader] = {}
        self._stack = AsyncExitStack()

    @property
    def identity(self) -> str:
        """See `grading.base.CodeGrader`."""
        harbor = harbor_identity(self._parts.environment.name)
        return f"{self._parts.execution.identity}+{harbor}+{math_judge()}"

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
        self._parts.execution.answered_from_memory()

    async def _grader(self, kind: GradedBy) -> AnswerGrader:
        if kind not in self._started:
            grader = self._started[kind] = KINDS[kind].make(self._parts)
            if isinstance(grader, AbstractAsyncContextManager):
                await self._stack.enter_async_context(grader)
        return self._started[kind]


class AnyGrader(Grader, CodeGrader, Protocol):
    """A judge of both completions and extracted programs."""


@dataclass(frozen=True, slots=True)
class Graders:
    """Graders that share a sandbox: `hidden` tests earn rewards, `public` ones may appear in prompts."""

    hidden: AnyGrader
    public: AnyGrader

    async def passes_public(self, problem: Problem, verdict: Verdict) -> bool | None:
        """Return whether a judged program passes its problem's public tests; None if it did not run.

        Programs without code or with a syntax error fail without running. One that used up a limit does
        not run: it would mostly use it up again, while a step of training waits for it.
        """
        if not problem.public_tests or verdict.error in SPENT:
            return None
        if verdict.passed:
            return True  # assumed, to save the run
        if verdict.code is None or verdict.error is ErrorType.syntax_error:
            return False
        return (await self.public.grade_code(problem, verdict.code)).passed


def check_service(sandbox: SandboxConfig) -> None:
    """Check that a configured sandbox service answers, before anything expensive starts.

    The embedded sandbox is not checked, since it starts on the training nodes, perhaps not on this one.

    Raises:
        ConfigError: the service is not a SandboxFusion server, or an unusable one.
        SandboxError: the service does not answer.
    """

    async def start_and_stop() -> None:
        async with make_sandbox(sandbox):
            pass

    if back_end(sandbox.name).is_service:
        asyncio.run(start_and_stop())


@asynccontextmanager
async def start_graders(
    sandbox: Sandbox,
    *,
    at_once: int,
    bare: bool = False,
    stop_early: bool = False,
    stop_at_limit: bool = False,
    max_failure_rate: float = MAX_FAILURE_RATE,
    tasks: TaskGraders | None = None,
    environment: TaskEnvironment = DEFAULT_ENVIRONMENT,
) -> AsyncIterator[Graders]:
    """Start a sandbox and the graders that share it; stop both on exit.

    Args:
        at_once: the number of programs judged concurrently. The others wait here and not in the sandbox,
            so that a verdict's judge_s excludes waiting.
        bare: see `CachedGrader`.
        stop_early: see `ExecutionGrader`.
        stop_at_limit: see `ExecutionGrader`; only for numbers that no policy learns from.
        max_failure_rate: `max_rate` of `CircuitBreaker`. Without it, each of thousands of samples would
            wait through all retries of an outage.
        tasks: see `kinds.Parts`; without it, problems with a Harbor task are ungradable.
        environment: the environment of Harbor tasks.

    Raises:
        SandboxError: the sandbox does not start.
    """
    limiter = limiter_of(sandbox, at_once)
    breaker = CircuitBreaker(max_rate=max_failure_rate)
    async with sandbox:
        executed = ExecutionGrader(
            sandbox,
            stop_early=stop_early,
            stop_at_limit=stop_at_limit,
            limiter=limiter,
            breaker=breaker,
        )
        public = ExecutionGrader(
            sandbox, stop_early=True, public=True, limiter=limiter, breaker=breaker
        )
        by_problem = GraderByProblem(
            Parts(
                execution=executed,
                limiter=limiter,
                breaker=breaker,
                environment=environment,
                tasks=tasks,
            )
        )
        async with by_problem as hidden:
            yield Graders(CachedGrader(hidden, bare=bare), CachedGrader(public, bare=bare))


def open_judge(
    sandbox: SandboxConfig,
    *,
    style: PromptStyle,
    stop_early: bool,
    stop_at_limit: bool = False,
    tasks: TaskGraders | None = None,
    environment: TaskEnvironment = DEFAULT_ENVIRONMENT,
    make: Callable[[SandboxConfig], Sandbox] | None = None,
) -> AbstractAsyncContextManager[Graders]:
    """Return a context that starts the graders of a configuration, and stops them on exit.

    Args:
        style: the style of the prompts that completions answer.
        stop_early: see `ExecutionGrader`. Sparse rewards depend only on whether a program passes; for
            dense ones every hidden test runs, since stopping would bias the pass fraction.
        stop_at_limit: see `start_graders`.
        tasks: see `start_graders`.
        environment: see `start_graders`.
        make: makes the sandbox, `make_sandbox` by default; that of a cluster runs on all its nodes.
    """
    return start_graders(
        (make or make_sandbox)(sandbox),
        at_once=back_end(sandbox.name).at_once(sandbox),
        bare=style is PromptStyle.bare,
        stop_early=stop_early,
        stop_at_limit=stop_at_limit,
        max_failure_rate=sandbox.max_failure_rate,
        tasks=tasks,
        environment=environment,
    )
