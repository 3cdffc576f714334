"""Agents that solve a task: its solution, a script, a model in a shell, or any class with `Agent.run`."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace
from typing import Protocol

from coding_model_project.episodes.bash import (
    Calls,
    ContextOverflow,
    Ending,
    Episode,
    Limits,
    Model,
)
from coding_model_project.errors import HarborError
from coding_model_project.harbor.environment.base import (
    CommandResult,
    Environment,
    ImageError,
    Killed,
)
from coding_model_project.harbor.format.task import Step, Task, resolve_env

SOLUTION = "/solution"
_SHOWN_CHARS = 300


class AgentTimeoutError(HarborError):
    """An agent that timed out. The verifier still runs."""


class NonZeroAgentExitCodeError(HarborError):
    """An agent whose command failed. The verifier still runs."""


class Agent(Protocol):
    """An agent that works on one step of a task in its environment."""

    @property
    def name(self) -> str: ...

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """Work until done. The trial cancels it when the step times out.

        Raises:
            AgentTimeoutError, NonZeroAgentExitCodeError: it failed; the verifier still runs.
            Exception: it failed; in a task with one step the verifier does not run, as in Harbor.
        """
        ...


ORACLE_OUTPUT, ORACLE_EXIT = "oracle.txt", "exit-code.txt"
"""Files in /logs/agent, by Harbor's names: the solution's output, and its exit code unless it is 0."""


class Oracle:
    """An agent that runs the task's own solution. It ignores the exit code, as Harbor does."""

    name = "oracle"

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """See `Agent.run`.

        Raises:
            FileNotFoundError: the task has no solution.
            RuntimeError: the solution exceeded a timeout that is not a whole number of seconds. Harbor's
                oracle rounds the command's timeout down, and treats the command's timeout as a failure.
        """
        script = step.solution / "solve.sh"
        if not script.is_file() or task.files.ignored(script):
            raise FileNotFoundError(f"Solution script not found: {script}")
        files = task.files.tree(step.solution).executable("solve.sh")
        await environment.write_tree(SOLUTION, files)
        timeout_s = step.agent.timeout_sec
        whole_s = None if timeout_s is None else math.floor(timeout_s)
        ended = await environment.run_command(
            f"({SOLUTION}/solve.sh) > /logs/agent/{ORACLE_OUTPUT} 2>&1 || "
            f"printf %s $? > /logs/agent/{ORACLE_EXIT}",
            env={
                "DEBIAN_FRONTEND": "noninteractive",
                **resolve_env(task.config.solution.env, task.environ),
            },
            timeout_s=timeout_s if whole_s is None else whole_s,
            user=step.agent.user,
        )
        if ended.timed_out:
            if whole_s == timeout_s:
                raise AgentTimeoutError(f"the oracle did not end within {timeout_s} s")
            raise RuntimeError(f"Command timed out after {whole_s} seconds")
        check_ended(ended)


class Script:
    """An agent that runs a candidate's shell script in the working directory."""

    name = "script"

    def __init__(self, script: str) -> None:
        self._script = script

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """See `Agent.run`."""
        ended = await environment.run_command(
            self._script, timeout_s=step.agent.timeout_sec, user=step.agent.user
        )
        if ended.timed_out:
            raise AgentTimeoutError(f"the script did not end within {step.agent.timeout_sec} s")
        check_ended(ended)
        if ended.exit_code != 0:
            output = (ended.stderr or ended.stdout).strip()[-_SHOWN_CHARS:]
            raise NonZeroAgentExitCodeError(
                f"the script exited with code {ended.exit_code}: {output}"
            )


class SolutionFile:
    """An agent that writes a candidate's program to a file of the working directory."""

    name = "solution-file"

    def __init__(self, path: str, code: str) -> None:
        self._path, self._code = path, code

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """See `Agent.run`."""
        await environment.write_file(self._path, self._code.encode("utf-8", "replace"))


def check_ended(ended: CommandResult) -> None:
    """Raise if a command was killed for exceeding a limit.

    Raises:
        NonZeroAgentExitCodeError: the limit was that of memory or processes.
    """
    if ended.killed in (Killed.memory, Killed.processes):
        raise NonZeroAgentExitCodeError(f"the command reached its limit of {ended.killed}")


class BashAgent:
    """An agent that runs one episode of a model per step. See `agents.Agent`.

    Each trial needs its own; `episodes` holds those of its steps.
    """

    name = "bash"

    def __init__(self, model: Model, limits: Limits, calls: Calls = Calls.block) -> None:
        self._model, self._limits, self._calls = model, limits, calls
        self.episodes: list[Episode] = []

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """See `Agent.run`.

        Raises:
            ImageError: the task offers its agent more than a shell.
            EnvironmentFailed: the environment is lost.
            Exception: as `Model.reply`.
        """
        for key in ("mcp_servers", "skills_dir"):
            if getattr(task.config.environment, key):
                raise ImageError(
                    f"environment.{key} is not supported by the bash agent; use an agent that takes it "
                    "(coding.agent.command, --agent)"
                )
        episode = Episode(
            step.instruction,
            environment,
            self._limits,
            calls=self._calls,
            user=step.agent.user,
        )
        self.episodes.append(episode)
        try:
            while episode.ending is None:
                await self._turn(episode)
        except asyncio.CancelledError:  # the task's own time limit
            episode.end(Ending.time)
            raise

    async def _turn(self, episode: Episode) -> None:
        left_s = episode.seconds_left
        deadline = asyncio.timeout(None if math.isinf(left_s) else left_s)
        started = time.monotonic()
        try:
            async with deadline:
                reply = await self._model.reply(episode.messages, episode.tokens_left)
        except ContextOverflow:
            return episode.end(Ending.context)
        except TimeoutError:
            if not deadline.expired():
                raise
            return episode.end(Ending.time)
        return await episode.take(replace(reply, seconds=time.monotonic() - started))
