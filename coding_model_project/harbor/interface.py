"""Harbor tasks from Python, by the names of the tinker cookbook: load them, and judge agents on them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import ConfigError, UngradableError
from coding_model_project.grading.base import AUTO, TaskEnvironment
from coding_model_project.grading.retries import Limiter
from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.environment.base import Environment
from coding_model_project.harbor.environment.factory import environments_of
from coding_model_project.harbor.environment.foreign import FactoryEnvironments
from coding_model_project.harbor.environment.sandboxes import HarborSandbox, SandboxFactory
from coding_model_project.harbor.format.task import Step, Task
from coding_model_project.harbor.format.tasks import Refused, read_tasks
from coding_model_project.harbor.grader import HarborGrader
from coding_model_project.types import Problem, Verdict

HARBOR_CACHE_DIR = Path.home() / ".cache" / "harbor" / "tasks"
"""The folder where `harbor datasets download` puts data sets."""


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
