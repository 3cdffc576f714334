"""Checks of `coding.harbor`: environments must be available, and rewards must be usable."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.base import TaskEnvironment
from coding_model_project.harbor.environment.base import ENGINES, EnvironmentFailed, ImageError
from coding_model_project.harbor.environment.factory import check_supported, environments_of
from coding_model_project.harbor.format.task import Task, load_task, passed_variables
from coding_model_project.harbor.integrity import Accepted, Integrity
from coding_model_project.launch.checks.episode_checks import has_agent, has_bash
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
        ConfigError: an agent that needs tasks gets a problem without one, no engine answers, no task can
            run, or no reward would be used.
    """
    _check_named(config, problems)
    where, accepted = config.coding.harbor.environment, config.coding.harbor.integrity
    tasks = {problem.id: _task(problem) for problem in problems if problem.task is not None}
    if where in ENGINES and tasks:
        _check_engine(where)
    _check_supported(where, tasks)
    shared = [problem for problem in problems if _is_shared(problem, tasks)]
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


def _check_supported(where: str, tasks: Mapping[str, Task]) -> None:
    """Print how many tasks no environment here can run.

    Args:
        tasks: by problem id.

    Raises:
        ConfigError: it can run none of them.
    """
    reasons: list[str] = []
    for name, task in tasks.items():
        try:
            check_supported(where, task)
        except ImageError as error:
            reasons.append(f"{name}: {error}")
    if not reasons:
        return
    said = f"{len(reasons)} of {len(tasks)} tasks cannot run, such as {reasons[0]}"
    if len(reasons) == len(tasks):
        raise ConfigError(f"coding.harbor.environment={where}: {said}")
    print(f"note: {said}; their samples are dropped", flush=True)


def _task(problem: Problem) -> Task:
    """Return a problem's task.

    Raises:
        ConfigError: it does not exist, or is invalid.
    """
    try:
        return load_task(Path(str(problem.task)))
    except DataError as error:
        raise ConfigError(f"coding.problems: {problem.id}: {error}") from error


def _is_shared(problem: Problem, tasks: Mapping[str, Task]) -> bool:
    """Return whether the judged code shares its verifier's environment, or its harness's process."""
    if problem.task is None:
        return problem.harness is not None
    return Integrity.of(*tasks[problem.id].steps) is Integrity.in_process
