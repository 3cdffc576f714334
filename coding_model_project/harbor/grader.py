"""A grader that runs a completion's code in a Harbor task's environment; the task's verifier rewards it.

Python code becomes `solution.py` in the working directory. Bash code runs there as a script.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from coding_model_project.errors import CheckerError, DataError
from coding_model_project.grading.base import (
    DEFAULT_ENVIRONMENT,
    GRADER_VERSION,
    TaskEnvironment,
    harbor_identity,
    timing_failures,
)
from coding_model_project.grading.execution import clip
from coding_model_project.grading.retries import CircuitBreaker, Limiter
from coding_model_project.harbor.agents import (
    Agent,
    AgentTimeoutError,
    NonZeroAgentExitCodeError,
    Script,
    SolutionFile,
)
from coding_model_project.harbor.environment.base import (
    EnvironmentFailed,
    Environments,
    RegistryUnreachable,
)
from coding_model_project.harbor.environment.factory import environments_of
from coding_model_project.harbor.failures import VerifierError, VerifierTimeoutError
from coding_model_project.harbor.format.reward_rules import MAIN_KEY
from coding_model_project.harbor.format.task import Task, load_task, passed_variables
from coding_model_project.harbor.outcome import TrialOutcome
from coding_model_project.harbor.trial import Trials
from coding_model_project.types import ErrorType, Problem, TestResult, Verdict

COMPARISON = "harbor"
SOLUTION_FILE = "solution.py"
_DETAIL_BYTES = 2000
_AGENT_ERRORS = (AgentTimeoutError, NonZeroAgentExitCodeError)


class HarborGrader:
    """A grader of problems that name a Harbor task. An async context manager that starts on first use.

    If a verifier fails, it runs again on the task's own solution. If it rewards that, the candidate is
    wrong; otherwise the grader raises CheckerError and gives no verdict.

    Args:
        limiter: held while a trial runs.
        breaker: stops judging when environments keep failing; None disables it.
        environment: the environment of trials.
        environments: a factory of environments, instead of the one that `environment` names.
    """

    def __init__(
        self,
        *,
        limiter: Limiter,
        breaker: CircuitBreaker | None = None,
        environment: TaskEnvironment = DEFAULT_ENVIRONMENT,
        environments: Environments | None = None,
    ) -> None:
        self._limiter, self._breaker, self._where = limiter, breaker, environment
        self._environments = environments
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._trials: Trials | None = None
        self._tasks: dict[str, Task] = {}

    @property
    def identity(self) -> str:
        """Identity of everything that a verdict depends on, besides code and problem."""
        return harbor_identity(self._where.name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge a program without changes; None means that the completion has no code.

        Raises:
            UngradableError: (SandboxError, CheckerError, DataError, HarborError) no truthful verdict
                is possible.
        """
        if code is None:
            return self._verdict(problem, code=None, extraction=extraction, results=())
        agent: Agent
        if problem.language == "bash":
            agent = Script(code)
        elif problem.language == "python":
            agent = SolutionFile(SOLUTION_FILE, code)
        else:
            raise DataError(
                f"problem {problem.id}: language={problem.language}, Harbor tasks take python or bash"
            )
        return await self._judged(problem, agent, extraction, lambda: code)

    async def grade_agent(self, problem: Problem, agent: Agent, work: Callable[[], str]) -> Verdict:
        """Judge an agent's work on a task, in the environment in which it worked.

        Args:
            work: called when the agent has ended; returns its work as the verdict's code.

        Raises:
            UngradableError: as `grade_code`.
            Exception: the agent's exception, if it prevented verification.
        """
        return await self._judged(problem, agent, "agent", work)

    async def _judged(
        self, problem: Problem, agent: Agent, extraction: str, work: Callable[[], str]
    ) -> Verdict:
        task = self._task(problem)
        async with self._limiter.shared():
            started = time.monotonic()
            # Of a trial that an agent did not end, nobody knows which part was the model's time.
            with nullcontext() if extraction == "agent" else timing_failures():
                outcome = await self._run(task, agent)
            judge_s = time.monotonic() - started
        rewards, result = await self._result(task, outcome)
        if extraction == "agent":  # the rest is the model's time
            judge_s = sum(step.verifier_s for step in outcome.steps)
        return self._verdict(
            problem,
            code=work(),
            extraction=extraction,
            results=(result,),
            integrity=outcome.integrity,
            judge_s=judge_s,
            rewards=rewards,
        )

    async def _result(
        self, task: Task, outcome: TrialOutcome
    ) -> tuple[dict[str, float | int] | None, TestResult]:
        """Return the rewards, and the trial as a single test result.

        Raises:
            UngradableError: as `grade_code`.
        """
        errors = outcome.errors
        error = next((e for e in errors if not isinstance(e, _AGENT_ERRORS)), None)
        detail = clip(outcome.steps[-1].verifier_output, _DETAIL_BYTES) if outcome.steps else ""
        if error is not None:
            kind = await self._blame(task, error)
            return None, TestResult(error=kind, detail=clip(str(error), _DETAIL_BYTES))
        rewards = dict(outcome.rewards or {})
        if MAIN_KEY not in rewards:
            raise DataError(
                f"{task.path}: the verifier's rewards have no {MAIN_KEY!r}, only {list(rewards)}"
            )
        passed = rewards[MAIN_KEY] >= 1
        ran_out = any(isinstance(e, AgentTimeoutError) for e in errors)
        failed = ErrorType.timeout if ran_out else ErrorType.wrong_answer
        return rewards, TestResult(
            error=None if passed else failed, detail="" if passed else detail
        )

    async def _blame(self, task: Task, error: Exception) -> ErrorType:
        """Return the candidate's error, if the candidate caused a trial to end without a reward.

        Raises:
            UngradableError: as `grade_code`; the candidate did not cause it.
        """
        if not isinstance(error, VerifierError | OSError):  # OSError: a path that must be written
            raise error
        is_sound = False
        if task.has_solution:
            async with self._limiter.shared():
                control = await (await self._started()).control(task)
            is_sound = control.reward_valid and control.hindered is None
        if not is_sound:
            raise CheckerError(f"{task.path}: the verifier failed: {error}") from error
        late = isinstance(error, VerifierTimeoutError)
        return ErrorType.timeout if late else ErrorType.runtime_error

    async def _run(self, task: Task, agent: Agent) -> TrialOutcome:
        """Run a trial.

        Raises:
            SandboxError: the environment failed, or the circuit breaker is open.
        """
        if self._breaker is not None:
            self._breaker.check()
        outcome = await (await self._started()).run(task, agent)
        failure = next((e for e in outcome.errors if isinstance(e, EnvironmentFailed)), None)
        if self._breaker is not None:
            is_its_own = isinstance(failure, RegistryUnreachable)  # other tasks need other images
            self._breaker.record(None if is_its_own else failure)
        if failure is not None:
            raise failure
        return outcome

    async def _started(self) -> Trials:
        async with self._starting:
            if self._trials is None:
                made = self._environments or environments_of(self._where)
                self._trials = Trials(await self._stack.enter_async_context(made))
        return self._trials

    def _verdict(self, problem: Problem, **more: Any) -> Verdict:
        made = self._environments
        return Verdict(
            problem_id=problem.id,
            n_tests=1,
            comparison=COMPARISON,
            sandbox=made.identity if made else f"harbor/{self._where.name}",
            grader_version=GRADER_VERSION,
            **more,
        )

    def _task(self, problem: Problem) -> Task:
        if problem.task is None:
            raise DataError(f"problem {problem.id} names no Harbor task")
        if problem.task not in self._tasks:
            passed = passed_variables(self._where.pass_env, "coding.harbor.pass_env")
            self._tasks[problem.task] = replace(load_task(Path(problem.task)), environ=passed)
        return self._tasks[problem.task]
