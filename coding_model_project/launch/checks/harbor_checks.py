"""Checks of `coding.harbor`: environments must be available, and rewards must be usable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.base import ROOMS, TaskEnvironment
from coding_model_project.harbor.environment.base import ENGINES, EnvironmentFailed
from coding_model_project.harbor.environment.factory import environments_of
from coding_model_project.harbor.format.task import load_task, passed_variables
from coding_model_project.harbor.integrity import Accepted
from coding_model_project.launch.checks.agent_checks import has_agent
from coding_model_project.launch.checks.bash_checks import has_bash
from coding_model_project.types import GradedBy, Problem


def check_values(config: DictConfig) -> None:
    """Check the values of `coding.harbor`.

    Raises:
        ConfigError: the environment's name is unknown, or a number is out of range.
    """
    harbor = config.coding.harbor
    environments_of(TaskEnvironment(name=harbor.environment))
    if harbor.containers is not None and harbor.containers < 1:
        raise ConfigError(
            f"coding.harbor.containers={harbor.containers}: set it to 1 or more, or null"
        )
    passed_variables(harbor.pass_env, "coding.harbor.pass_env")
    if harbor.warm < 0:
        raise ConfigError(f"coding.harbor.warm={harbor.warm}: set it to 0 or more")


def check_problems(config: DictConfig, problems: Sequence[Problem]) -> None:
    """Check that tasks can run in their environment, and that their rewards may be trained on.

    Raises:
        ConfigError: an agent that needs tasks gets a problem without one, no engine answers, or no
            task's reward would be used.
    """
    _check_named(config, problems)
    where, accepted = config.coding.harbor.environment, config.coding.harbor.integrity
    tasks = [problem for problem in problems if problem.task is not None]
    if not tasks or where == ROOMS:
        return
    if where in ENGINES:
        _check_engine(where)
    unwatched = [problem for problem in tasks if not _is_separate(problem)]
    if not unwatched:
        return
    warning = (
        f"coding.harbor.environment={where}: nothing watches what runs there, so the agent's code may "
        f"forge the rewards of {len(unwatched)} of {len(tasks)} tasks, such as {unwatched[0].id} "
        "(integrity=in_process)"
    )
    if accepted == Accepted.isolated and where in ENGINES:
        raise ConfigError(
            f"{warning}, and coding.harbor.integrity=isolated drops them: set "
            "coding.harbor.integrity=any, give their verifiers environments of their own "
            f'(environment_mode = "separate"), or set coding.harbor.environment={ROOMS}'
        )
    if accepted == Accepted.any:
        print(f"note: {warning}; coding.harbor.integrity=any trains on them", flush=True)


def _check_named(config: DictConfig, problems: Sequence[Problem]) -> None:
    """Raise ConfigError if an agent makes the samples and a problem names no task."""
    if has_agent(config):
        worker = "the agents of coding.agent work"
    elif has_bash(config):
        worker = "the bash agent of coding.bash works"
    else:
        return
    other = next((problem for problem in problems if problem.task is None), None)
    if other is not None:
        raise ConfigError(
            f"coding.problems: {other.id} names no Harbor task (grader: {GradedBy.harbor}), and {worker} "
            "only on those"
        )


def _check_engine(program: str) -> None:
    """Raise ConfigError if a container engine is not installed or does not answer."""
    from coding_model_project.harbor.containers.container_engine import Engine

    try:
        asyncio.run(Engine(program).find())
    except EnvironmentFailed as error:
        raise ConfigError(f"coding.harbor.environment={program}: {error}") from error


def _is_separate(problem: Problem) -> bool:
    """Return whether every verifier of the task has its own environment.

    Raises:
        ConfigError: the task does not exist.
    """
    assert problem.task is not None
    try:
        task = load_task(Path(problem.task))
    except DataError as error:
        raise ConfigError(f"coding.problems: {problem.id}: {error}") from error
    return all(step.verifier_environment is not None for step in task.steps)
