"""Checks of `coding.harbor`: environments must be available, and rewards must be usable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.base import TaskEnvironment
from coding_model_project.harbor.environment.base import ENGINES, EnvironmentFailed
from coding_model_project.harbor.environment.factory import environments_of
from coding_model_project.harbor.format.task import load_task, passed_variables
from coding_model_project.harbor.integrity import Accepted, Integrity
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
            reward would be used.
    """
    _check_named(config, problems)
    where, accepted = config.coding.harbor.environment, config.coding.harbor.integrity
    if where in ENGINES and any(problem.task is not None for problem in problems):
        _check_engine(where)
    shared = [problem for problem in problems if _is_shared(problem)]
    if not shared:
        return
    warning = (
        f"{len(shared)} of {len(problems)} problems, such as {shared[0].id}, are verified where their "
        "programs or agents ran, which may forge the reward (integrity=in_process)"
    )
    if accepted == Accepted.any:
        print(f"note: {warning}; `harbor check` tries known forgeries", flush=True)
        return
    dropped = f"{warning}, and coding.harbor.integrity=isolated drops their samples"
    if len(shared) == len(problems):
        raise ConfigError(
            f"{dropped}: set coding.harbor.integrity=any, or give their verifiers environments of "
            'their own (environment_mode = "separate")'
        )
    print(f"note: {dropped}", flush=True)


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


def _is_shared(problem: Problem) -> bool:
    """Return whether the judged code shares its verifier's environment, or its harness's process.

    Raises:
        ConfigError: the task does not exist.
    """
    if problem.task is None:
        return problem.harness is not None
    try:
        task = load_task(Path(problem.task))
    except DataError as error:
        raise ConfigError(f"coding.problems: {problem.id}: {error}") from error
    return Integrity.of(*task.steps) is Integrity.in_process
