"""The Ray actor that judges on a node, with its sandbox, its graders and the problems sent to it."""

from __future__ import annotations

import os
import platform
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar

from coding_model_project import __version__
from coding_model_project.data.quality.faults import Fault
from coding_model_project.data.quality.preflight import Checker, Preflight, open_checker
from coding_model_project.errors import SandboxError, UngradableError
from coding_model_project.grading.base import Outcome
from coding_model_project.grading.judge import (
    Graders,
    make_sandbox,
    programs_at_once,
    start_graders,
)
from coding_model_project.runs.shared_folder import source
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import Problem, Stdin, Test

_Result = TypeVar("_Result")

_PROBE = Problem.simple("Add one.", tests=[Test(Stdin("1"), expected="2")], id="probe")
_PROBE_CODE = "print(int(input()) + 1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePlan:
    """Arguments of `grading.judge.open_judge` for all nodes."""

    sandbox: SandboxConfig
    bare: bool
    stop_early: bool
    stop_at_limit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Facts about a node's judge that has passed its probe."""

    identity: str
    """Grader version, sandbox, tier, interpreter and mode (`CodeGrader.identity`)."""
    sandbox: str
    """`Sandbox.identity`."""
    versions: str
    """Version and source of this package, and the version of its Python."""
    at_once: int
    """Number of programs that it runs at once."""


class NodeJudge:
    """The actor of a node; `node_judges.RayNode` is its client in the driver.

    Methods return an `UngradableError` as a result, since Ray would wrap a raised one.

    Args:
        cpus: CPUs that Ray counts on this node: most programs at once.
    """

    def __init__(self, plan: JudgePlan, cpus: int) -> None:
        self._plan = plan
        self._at_once = max(1, min(programs_at_once(plan.sandbox), cpus))
        self._problems: dict[int, Problem] = {}
        self._stack = AsyncExitStack()
        self._checker: Checker | None = None
        self._graders: Graders | None = None

    async def open(self) -> NodeFacts | Exception:
        """Start or restart the judge, and judge a probe program."""
        try:
            return await self._open()
        except (UngradableError, OSError) as error:
            return error

    async def _open(self) -> NodeFacts:
        await self._stack.aclose()
        plan, sandbox = self._plan, make_sandbox(self._plan.sandbox)
        graders = await self._stack.enter_async_context(
            start_graders(
                sandbox,
                at_once=self._at_once,
                bare=plan.bare,
                stop_early=plan.stop_early,
                stop_at_limit=plan.stop_at_limit,
                max_failure_rate=plan.sandbox.max_failure_rate,
            )
        )
        verdict = await graders.hidden.grade_code(_PROBE, _PROBE_CODE)
        if not verdict.passed:
            raise SandboxError(f"the judge rejects a correct program: {verdict.results[0].detail}")
        self._checker = await self._stack.enter_async_context(open_checker(sandbox))
        self._graders = graders
        return NodeFacts(
            identity=graders.hidden.identity,
            sandbox=sandbox.identity,
            versions=f"{__version__} ({source()}), Python {platform.python_version()}",
            at_once=self._at_once,
        )

    async def ping(self) -> int:
        """Return the process id, which shows that the process is alive."""
        return os.getpid()

    async def take(self, number: int, problem: Problem) -> None:
        """Store a problem under the number by which later calls name it."""
        self._problems[number] = problem

    async def grade(self, number: int, completion: str, public: bool) -> Outcome:
        """See `grading.base.Grader.grade`."""
        return await _returned(self._grader(public).grade(self._problems[number], completion))

    async def grade_code(
        self, number: int, code: str | None, extraction: str, public: bool
    ) -> Outcome:
        """See `grading.base.CodeGrader.grade_code`."""
        problem = self._problems[number]
        return await _returned(
            self._grader(public).grade_code(problem, code, extraction=extraction)
        )

    async def preflight(
        self,
        problem: Problem,
        found: Sequence[Fault],
        mutants: int,
        repeats: int,
    ) -> Preflight | UngradableError:
        """See `data.quality.preflight.Checker.check`."""
        if self._checker is None:
            return SandboxError("the judge is not open")
        check = self._checker.check
        return await _returned(check(problem, found, mutants_per_problem=mutants, repeats=repeats))

    def _grader(self, public: bool):
        assert self._graders is not None, "open() comes first"
        return self._graders.public if public else self._graders.hidden


async def _returned(work: Awaitable[_Result]) -> _Result | UngradableError:
    try:
        return await work
    except UngradableError as error:
        return error
