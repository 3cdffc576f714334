"""One attempt at a task: environment, agent, verifier, rewards, in Harbor's order and by its rules.

    start the environment, health check → agent → collect artifacts → verifier → read the reward

One deliberate difference: before the verifier starts, every process of the agent is gone, and /tests and
/logs/verifier are folders that the agent never saw. Harbor only deletes two files.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from os.path import normpath
from pathlib import Path, PurePosixPath

from coding_model_project.concurrency import Once
from coding_model_project.errors import HarborError
from coding_model_project.grading.retries import Limiter
from coding_model_project.harbor.agents import (
    Agent,
    AgentTimeoutError,
    NonZeroAgentExitCodeError,
    Oracle,
    Script,
)
from coding_model_project.harbor.environment.base import (
    Environment,
    EnvironmentFailed,
    Environments,
)
from coding_model_project.harbor.environment.definition import one_network, refuse_other_services
from coding_model_project.harbor.environment.tree import Tree
from coding_model_project.harbor.failures import (
    VerifierError,
    VerifierTimeoutError,
    VerifierUnusableError,
)
from coding_model_project.harbor.format.reward_rules import Rewards, combined, meets
from coding_model_project.harbor.format.task import (
    Step,
    Task,
    resolve_env,
    resolve_verifier_env,
    withheld,
)
from coding_model_project.harbor.format.task_config import Artifact, EnvironmentConfig
from coding_model_project.harbor.outcome import Collected, StepOutcome, TrialOutcome
from coding_model_project.harbor.verification import (
    MAX_KEPT_BYTES,
    VerifierDisturbedError,
    of_network,
    verify,
)

ARTIFACTS = "/logs/artifacts"
_STILL_VERIFIED = (AgentTimeoutError, NonZeroAgentExitCodeError)
_SHOWN_CHARS = 300
_AT_ONCE = 1024
"""Maximum number of concurrent trials of one runner."""

_KEPT_CONTROLS = 4096
"""Maximum number of tasks of which one runner remembers whether their verifiers work."""

_ALONE_BUDGET = 0.1
"""Maximum share of the time for verifiers that run alone: an agent can make its verifier time out."""


class EnvironmentStartTimeoutError(HarborError):
    """An environment that did not start in time."""


class Trials:
    """A runner of trials in the environments of one factory; safe to use concurrently.

    Args:
        verifier_env: the user's variables for every verifier, which override the task's and the step's.
    """

    def __init__(
        self,
        environments: Environments,
        *,
        verifier_env: Mapping[str, str] | None = None,
    ) -> None:
        self.environments = environments
        self.given_env = verifier_env or {}
        self._limiter = Limiter(_AT_ONCE)
        self._since, self._alone_s = time.monotonic(), 0.0
        self._controls: Once[Path, TrialOutcome] = Once(_KEPT_CONTROLS)

    async def run(self, task: Task, agent: Agent) -> TrialOutcome:
        """Run an agent on a task, and verify its work.

        The outcome holds every error; only cancellation is raised.
        """
        outcome = await self._attempt(task, agent)
        try:
            hindered = await self._hindered(outcome, agent)
        except EnvironmentFailed as error:
            return replace(outcome, rewards=None, error=error)
        if hindered is None:
            return outcome
        unusable = VerifierUnusableError(
            f"the verifier cannot work here, and so gave no reward above 0: {hindered}; run the task "
            "where it can (--environment, coding.harbor.environment), or with Harbor itself"
        )
        return replace(outcome, rewards=None, error=unusable)

    async def control(self, task: Task) -> TrialOutcome:
        """Return the outcome of the task's own solution, or of doing nothing if it has none.

        It runs once for each task.

        Raises:
            EnvironmentFailed: the environment failed, so that nothing is known.
        """

        async def run() -> TrialOutcome:
            outcome = await self._attempt(task, Oracle() if task.has_solution else Script(""))
            for error in outcome.errors:
                if isinstance(error, EnvironmentFailed):
                    raise error
            return outcome

        return await self._controls.get(task.path, run)

    async def _hindered(self, outcome: TrialOutcome, agent: Agent) -> str | None:
        """Return what keeps a task's verifier from working, whatever an agent does; None if nothing.

        The judged program may print whatever it likes. So signs in its verifier's output only lead to a
        control, in which it takes no part; the control's signs decide. If that does nothing, a missing
        program may be what the task asks for, and only a missing network counts. A trial without a
        reward keeps its own error.

        Raises:
            EnvironmentFailed: as `control`.
        """
        lost = outcome.failed or any(isinstance(one, VerifierError) for one in outcome.errors)
        if outcome.hindered is None or lost or isinstance(agent, Oracle):
            return None if lost else outcome.hindered
        control = await self.control(outcome.task)
        if outcome.task.has_solution:
            return control.hindered
        outputs = (step.verifier_output for step in control.steps if step.hindered)
        return next(filter(None, map(of_network, outputs)), None)

    async def _attempt(self, task: Task, agent: Agent) -> TrialOutcome:
        started = time.monotonic()
        attempt = _Attempt(self, task, agent)
        error: Exception | None = None
        try:
            async with self._limiter.shared():
                await attempt.run()
        except Exception as raised:  # noqa: BLE001 - the outcome holds the error
            error = raised
        steps = tuple(attempt.steps)
        if task.has_steps:
            strategy = task.config.multi_step_reward_strategy
            rewards = combined(strategy, [step.rewards for step in steps])
        else:
            rewards = steps[0].rewards if steps else None
            error = error or (steps[0].error if steps else None)
        return TrialOutcome(
            task=task,
            rewards=rewards,
            error=error,
            steps=steps,
            notes=attempt.notes,
            wall_s=time.monotonic() - started,
        )

    @asynccontextmanager
    async def environment(
        self, folder: Path, config: EnvironmentConfig, environ: Mapping[str, str]
    ) -> AsyncIterator[Environment]:
        """Provide a healthy environment, and clean it up on exit.

        Args:
            environ: see `Task.environ`.

        Raises:
            ImageError, EnvironmentStartTimeoutError, HealthcheckError, EnvironmentFailed
        """
        env = resolve_env(config.env, environ)
        try:
            async with asyncio.timeout(config.build_timeout_sec):
                environment = await self.environments.create(folder, config, env)
        except TimeoutError as error:
            raise EnvironmentStartTimeoutError(
                f"the environment did not start within {config.build_timeout_sec} s"
            ) from error
        try:
            if config.healthcheck is not None:
                await environment.become_healthy(config.healthcheck)
            yield environment
        finally:
            await environment.cleanup()

    @asynccontextmanager
    async def alone(self, error: HarborError | EnvironmentFailed) -> AsyncIterator[None]:
        """Have a trial run alone, after its verifier did not end in time.

        Raises:
            VerifierTimeoutError: the error, if too much time went into such runs already.
        """
        started = time.monotonic()
        is_spent = self._alone_s > _ALONE_BUDGET * (started - self._since)
        if is_spent and isinstance(error, VerifierTimeoutError):
            raise error
        try:
            async with self._limiter.alone_instead():
                yield
        finally:
            self._alone_s += time.monotonic() - started

    def verifier_env(self, task: Task, step: Step) -> dict[str, str]:
        """Return a step's verifier variables: the task's, the step's, then the command line's."""
        own = step.verifier.env
        return resolve_verifier_env(own, task.environ, resolve_env(self.given_env, os.environ))


class _Attempt:
    """One trial in progress."""

    def __init__(self, trials: Trials, task: Task, agent: Agent) -> None:
        self._trials, self._task, self._agent = trials, task, agent
        self.steps: list[StepOutcome] = []
        self.notes: tuple[str, ...] = ()

    async def run(self) -> None:
        task = self._task
        refuse_other_services(task)
        config = one_network(task)
        place = self._trials.environment(task.environment_dir, config, task.environ)
        async with place as environment:
            self.notes = (*withheld(task, self._trials.given_env), *environment.notes)
            for step in task.steps:
                outcome = StepOutcome(name=step.name)
                self.steps.append(outcome)
                await self._step(step, environment, outcome)
                if isinstance(outcome.error, EnvironmentFailed):
                    raise outcome.error
                given_up = outcome.error is not None and outcome.rewards is None
                if given_up or not meets(outcome.rewards, step.min_reward):
                    return
                if step is not task.steps[-1] and step.verifier_environment is None:
                    await environment.end_verifier()

    async def _step(self, step: Step, environment: Environment, ended: StepOutcome) -> None:
        """Run the agent, then the verifier. The outcome gets any error."""
        started = verifying = time.monotonic()
        try:
            await self._prepare(step, environment)
            try:
                await self._act(step, environment)
            except Exception as raised:
                # In a task with steps, the verifier runs after any error of the agent.
                if not (self._task.has_steps or isinstance(raised, _STILL_VERIFIED)):
                    raise
                ended.error = raised
            verifying = time.monotonic()
            if isinstance(self._agent, Oracle):
                with suppress(OSError):  # gone, or too large
                    ended.agent_files = await environment.read_tree("/logs/agent", MAX_KEPT_BYTES)
            ended.collected = await self._collect(step, environment)
            ended.rewards = await self._verify(step, environment, ended)
        except Exception as raised:  # noqa: BLE001 - the outcome holds the error
            ended.error = ended.error or raised
        now = time.monotonic()
        verifying = now if verifying == started else verifying
        ended.agent_s, ended.verifier_s = verifying - started, now - verifying

    async def _prepare(self, step: Step, environment: Environment) -> None:
        """Write a step's own files, run its set-up, and wait for its health check."""
        if step.workdir is not None:
            files = self._task.files.tree(step.workdir)
            await environment.write_tree(environment.workdir, files)
            if (step.workdir / "setup.sh").exists():
                script = f"{environment.workdir.rstrip('/')}/setup.sh"
                ended = await environment.run_command(f"bash '{script}'", user=step.agent.user)
                if ended.exit_code != 0:
                    raise RuntimeError(
                        f"Step '{step.name}' setup.sh exited with code {ended.exit_code}: "
                        f"{ended.stderr[-_SHOWN_CHARS:]}"
                    )
        if step.healthcheck is not None:
            await environment.become_healthy(step.healthcheck)

    async def _act(self, step: Step, environment: Environment) -> None:
        timeout_s = step.agent.timeout_sec
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                await self._agent.run(self._task, step, environment)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise AgentTimeoutError(f"the agent did not end within {timeout_s} s") from error

    # ── artifacts ─────────────────────────────────────────────────────────────────────────────────

    async def _collect(self, step: Step, environment: Environment) -> tuple[Collected, ...]:
        """Return /logs/artifacts and the step's artifacts that exist; the notes name too large ones."""
        for hook in step.verifier.collect:
            await environment.run_command(hook.command, timeout_s=hook.timeout_sec, user=hook.user)
        wanted = step.artifacts
        if not any(one.source.rstrip("/") == ARTIFACTS for one in wanted):
            wanted = (Artifact(source=ARTIFACTS), *wanted)
        collected: list[Collected] = []
        for one in dict.fromkeys(wanted):
            path = normpath(PurePosixPath(environment.workdir, one.source)).lstrip("/")
            try:
                found = (await environment.read_tree(f"/{path}")).safe().without(one.exclude)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.notes += (f"the artifact {one.source} was not collected: {error}",)
                continue
            destination = normpath(one.destination or path)
            collected.append(Collected(path=path, destination=destination, found=found))
        return tuple(collected)

    # ── the verifier ──────────────────────────────────────────────────────────────────────────────

    async def _verify(self, step: Step, environment: Environment, ended: StepOutcome) -> Rewards:
        """Run the verifier and return its rewards.

        Raises:
            VerifierError: there are no rewards.
            MissingVariable, EnvironmentFailed, ImageError, …
        """
        if step.verifier_environment is None:
            return await self._tested(step, environment, ended)
        artifacts = sum((one.found.at(one.path) for one in ended.collected), Tree())
        assert step.verifier_image is not None
        config = replace(
            step.verifier_environment,
            network_mode=step.verifier.network_mode or step.verifier_environment.network_mode,
            allowed_hosts=step.verifier.allowed_hosts,
        )
        apart = self._trials.environment(step.verifier_image, config, self._task.environ)
        async with apart as own:
            await own.write_tree("/", artifacts)
            return await self._tested(step, own, ended)

    async def _tested(self, step: Step, environment: Environment, ended: StepOutcome) -> Rewards:
        """Run the verifier; if it does not end in time, run it again without other trials."""
        env = self._trials.verifier_env(self._task, step)
        run = partial(verify, self._task, step, environment, env, ended)
        try:
            return await run()
        except (VerifierTimeoutError, VerifierDisturbedError) as error:
            async with self._trials.alone(error):
                await environment.end_verifier()
                return await run()
