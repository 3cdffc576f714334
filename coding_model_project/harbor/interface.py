"""Harbor tasks from Python, by the names of the tinker cookbook: load, run and judge them.

A `SandboxFactory` gets a task's environment/ folder and a lifetime in seconds. One of your own serves
trials (`environment.foreign`); `harbor_sandbox` is one that makes this project's environments.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import ConfigError, UngradableError
from coding_model_project.grading.base import AUTO, TaskEnvironment
from coding_model_project.grading.retries import Limiter
from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.environment.base import (
    MAX_FILE_BYTES,
    Environment,
    EnvironmentFailed,
)
from coding_model_project.harbor.environment.factory import environments_of
from coding_model_project.harbor.environment.foreign import FactoryEnvironments, SandboxFactory
from coding_model_project.harbor.format.task import Step, Task, load_task, resolve_env
from coding_model_project.harbor.format.tasks import Refused, read_tasks
from coding_model_project.harbor.grader import HarborGrader
from coding_model_project.types import Problem, Verdict

HARBOR_CACHE_DIR = Path.home() / ".cache" / "harbor" / "tasks"
"""The folder where `harbor datasets download` puts data sets."""


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The result of a sandbox's operation; `exit_code` is negative if the sandbox itself failed."""

    stdout: str
    stderr: str
    exit_code: int
    metrics: dict[str, Any] = field(default_factory=dict[str, Any])


async def harbor_sandbox(env_dir: Path, timeout: int) -> HarborSandbox:
    """Make a sandbox from a task's environment/ folder: a room, or a container if the image needs one.

    A `SandboxFactory`, so that other programs' recipes run Harbor tasks on this machine. The task.toml
    beside the folder applies.

    Args:
        timeout: seconds until the sandbox ends by itself.

    Raises:
        UngradableError: the environment cannot be made here.
    """
    folder = Path(env_dir)
    task = load_task(folder.parent)
    stack = AsyncExitStack()
    try:
        environments = await stack.enter_async_context(environments_of(TaskEnvironment()))
        config = task.config.environment
        env = resolve_env(config.env, task.environ)
        environment = await environments.create(folder, config, env)
        stack.push_async_callback(environment.cleanup)
    except BaseException:
        await stack.aclose()
        raise
    return HarborSandbox(environment, stack, timeout)


class HarborSandbox:
    """A sandbox of one trial, in a room or a container.

    Args:
        user: the user of commands; default: the image's.
        stack: closed by `cleanup`, and after `lifetime_s` seconds.
    """

    def __init__(
        self,
        environment: Environment,
        stack: AsyncExitStack | None = None,
        lifetime_s: float | None = None,
        user: str | int | None = None,
    ) -> None:
        self._environment, self._stack, self._user = environment, stack or AsyncExitStack(), user
        self._id = uuid4().hex
        self._ending: asyncio.Task[None] | None = None
        if lifetime_s is not None:
            self._ending = asyncio.create_task(self._end_after(lifetime_s))

    @property
    def sandbox_id(self) -> str:
        """The sandbox's identifier."""
        return self._id

    async def send_heartbeat(self, timeout: int = 30) -> None:
        """Return if the sandbox is alive.

        Raises:
            SandboxError: it is gone.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._environment.heartbeat()
        except TimeoutError as error:
            raise EnvironmentFailed(f"no sign of life within {timeout} s") from error

    async def run_command(
        self,
        command: str,
        workdir: str | None = None,
        timeout: int = 60,
        max_output_bytes: int | None = None,
    ) -> SandboxResult:
        """Run a shell command to its end, or kill it after `timeout` seconds (exit code -1).

        Args:
            workdir: default: the image's WORKDIR.
            max_output_bytes: maximum bytes kept from each stream; default: 128 KiB.

        Raises:
            SandboxError: the sandbox is gone.
        """
        ended = await self._environment.run_command(
            command,
            cwd=workdir,
            timeout_s=timeout,
            user=self._user,
            max_output=max_output_bytes or 128 << 10,
        )
        return SandboxResult(ended.stdout, ended.stderr, -1 if ended.timed_out else ended.exit_code)

    async def read_file(
        self, path: str, max_bytes: int | None = None, timeout: int = 60
    ) -> SandboxResult:
        """Read a file; `stdout` is its text, up to `max_bytes`. Raises as `run_command`."""
        most = max_bytes or MAX_FILE_BYTES
        return await self.run_command(f"head -c {most} {quote(path)}", None, timeout, 2 * most)

    async def write_file(
        self, path: str, content: str | bytes, executable: bool = False, timeout: int = 60
    ) -> SandboxResult:
        """Write a file, and make its parent folders. Raises as `run_command`."""
        body = content.encode() if isinstance(content, str) else content
        try:
            async with asyncio.timeout(timeout):
                await self._environment.write_file(path, body, 0o755 if executable else 0o644)
        except TimeoutError:
            return SandboxResult("", f"{path}: not written within {timeout} s", -1)
        except OSError as error:
            return SandboxResult("", str(error), 1)
        return SandboxResult("", "", 0)

    async def cleanup(self) -> None:
        """End the sandbox."""
        if self._ending is not None:
            self._ending.cancel()
        await self._stack.aclose()

    async def _end_after(self, lifetime_s: float) -> None:
        await asyncio.sleep(lifetime_s)
        await self._stack.aclose()


@dataclass(frozen=True, slots=True)
class HarborTask:
    """A task's folder that Harbor accepts."""

    task_name: str
    """The folder's name, with parent folders if several tasks share it."""
    instruction: str
    """The text for the agent; that of the first step, if the task has steps."""
    task_dir: Path
    """The folder with environment/Dockerfile and tests/test.sh."""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings of task.toml, with Harbor's defaults."""


HarborAgent = Callable[[HarborTask, HarborSandbox], Awaitable[object]]
"""Works on a task in its sandbox until done; called once per step of a task with steps."""


def load_harbor_tasks(path: str | Path = "") -> list[HarborTask]:
    """Load Harbor tasks from a folder, sorted by name.

    Args:
        path: a task's folder, a folder of tasks, a Parquet file of tasks, or the name of a data set that
            Harbor downloaded to ~/.cache/harbor/tasks; by default all of these.

    Raises:
        ConfigError: there is no such folder, or it holds no tasks.

    Warns:
        UserWarning: a folder was left out, since Harbor would refuse it.
    """
    given = Path(path) if str(path) else HARBOR_CACHE_DIR
    found = given if given.exists() else HARBOR_CACHE_DIR / given
    if not found.exists():
        raise ConfigError(
            f"path={path}: no such folder here, nor in {HARBOR_CACHE_DIR}; download the data set with "
            "`harbor datasets download`"
        )
    tasks: list[HarborTask] = []
    for read in read_tasks([found]):
        if isinstance(read, Refused):
            warnings.warn(f"left out {read.label}: {read.reason}", stacklevel=2)
        else:
            tasks.append(HarborTask(read.label, read.instruction, read.path, asdict(read.config)))
    return sorted(tasks, key=lambda task: task.task_name)


async def grade_harbor(
    tasks: Sequence[HarborTask],
    agent: HarborAgent | None = None,
    *,
    sandbox_factory: SandboxFactory | None = None,
    environment: str = AUTO,
    workers: int | None = None,
    return_errors: bool = False,
) -> list[Verdict | UngradableError]:
    """Let an agent work on each task, and judge its work by the task's verifier.

    Args:
        agent: `async def agent(task, sandbox)`; by default each task's own solution runs.
        sandbox_factory: makes a sandbox for each trial from the task's environment/ folder and a number
            of seconds, such as the tinker cookbook's; instead of `environment`.
        environment: see `--environment` of `harbor grade`.
        workers: the number of concurrent trials; by default one per CPU core.
        return_errors: return an `UngradableError` in place of a missing verdict. By default the first
            one is raised after all trials have ended.

    Returns:
        One verdict per task, in order; `rewards` has the verifier's rewards by name.

    Raises:
        UngradableError: no truthful verdict is possible: the environment, or the verifier, failed. Never
            treat one as a reward of 0.
        Exception: the agent's own.
    """
    limiter = Limiter(workers or usable_cores())
    named = TaskEnvironment(name=environment)
    made = FactoryEnvironments(sandbox_factory) if sandbox_factory else environments_of(named)
    async with HarborGrader(limiter=limiter, environments=made) as grader:

        async def one(task: HarborTask) -> Verdict:
            solver = Oracle() if agent is None else _Agent(task, agent)
            return await grader.grade_agent(_problem(task), solver, str)

        found = await asyncio.gather(*map(one, tasks), return_exceptions=True)
    verdicts: list[Verdict | UngradableError] = []
    for verdict in found:
        if isinstance(verdict, Verdict) or (return_errors and isinstance(verdict, UngradableError)):
            verdicts.append(verdict)
        else:
            raise verdict
    return verdicts


@dataclass(frozen=True, slots=True)
class _Agent:
    """A caller's agent as `agents.Agent`."""

    task: HarborTask
    work: HarborAgent
    name: str = "python"

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """See `agents.Agent.run`."""
        sandbox = HarborSandbox(environment, user=step.agent.user)
        await self.work(replace(self.task, instruction=step.instruction), sandbox)


def _problem(task: HarborTask) -> Problem:
    return Problem(
        id=f"harbor/{task.task_name}",
        split="train",
        statement=task.instruction,
        tests=(),
        task=str(task.task_dir),
    )
