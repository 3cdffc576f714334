"""Checks of `coding.repair`, `coding.bash`, `coding.agent` and `coding.harbor`, and of their problems."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from coding_model_project.configs.schema import CodingConfig
from coding_model_project.episodes.bash import Calls
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.base import ROOMS, TaskEnvironment
from coding_model_project.grading.observation import can_repair
from coding_model_project.harbor.environment.base import ENGINES, EnvironmentFailed, ImageError
from coding_model_project.harbor.environment.factory import check_supported, environments_of
from coding_model_project.harbor.format.task import Task, load_task, passed_variables
from coding_model_project.harbor.harbor_config import Accepted, AgentPlace, Integrity
from coding_model_project.types import GradedBy, Problem


def has_episodes(config: DictConfig) -> bool:
    """Return whether samples are episodes of `repair_loop` instead of verl's single-turn samples."""
    repair = config.coding.repair
    return repair.rounds > 0 or repair.attempt_tokens is not None


def has_agent(config: DictConfig) -> bool:
    """Return whether an agent at the gateway makes the samples (`gateway_loop`)."""
    return config.coding.agent.command is not None


def has_bash(config: DictConfig) -> bool:
    """Return whether samples are episodes of `bash_loop`."""
    return config.coding.bash.turns > 0 and not has_agent(config)


def attempt_tokens(config: DictConfig) -> int:
    """Return the maximum number of tokens of an episode's attempt."""
    repair = config.coding.repair
    return repair.attempt_tokens or config.data.max_response_length // (repair.rounds + 1)


def reply_tokens(config: DictConfig) -> int:
    """Return the maximum number of tokens of an episode's reply."""
    bash = config.coding.bash
    return bash.reply_tokens or config.data.max_response_length // (bash.turns + 1)


def task_environment(coding: CodingConfig) -> TaskEnvironment:
    """Return the environment that an agent's tasks run in; agents in their tasks' rooms need rooms."""
    place = coding.harbor.place()
    if coding.agent.place is not AgentPlace.room:
        return place
    folder = coding.agent.folder
    return replace(place, name=ROOMS, agent=folder and str(Path(folder).expanduser()))


def check_values(config: DictConfig) -> None:
    """Check the values of the four sections that rules.yaml cannot.

    Raises:
        ConfigError: a value is invalid; the message names the key.
    """
    environments_of(TaskEnvironment(name=config.coding.harbor.environment))
    passed_variables(config.coding.harbor.pass_env, "coding.harbor.pass_env")
    if has_episodes(config):
        key, tokens = "coding.repair.attempt_tokens", attempt_tokens(config)
        _check_share(config, key, config.coding.repair.attempt_tokens, tokens)
    if has_agent(config):
        _check_agent(config)
    elif has_bash(config):
        key, tokens = "coding.bash.reply_tokens", reply_tokens(config)
        _check_share(config, key, config.coding.bash.reply_tokens, tokens)


def _check_share(config: DictConfig, key: str, given: int | None, tokens: int) -> None:
    """Check the tokens of one answer, by default an equal share of the episode's."""
    longest = config.data.max_response_length
    if not 1 <= tokens <= longest:
        raise ConfigError(
            f"{key}={given}: set it to at least 1, and at most the whole episode's "
            f"data.max_response_length={longest}"
        )


def _check_agent(config: DictConfig) -> None:
    folder = config.coding.agent.folder
    if folder is not None and not Path(folder).expanduser().is_dir():
        raise ConfigError(f"coding.agent.folder={folder}: no such folder")


def check_problems(config: DictConfig, problems: Iterable[Problem]) -> None:
    """Raise ConfigError if repair is on but no problem can be repaired."""
    if config.coding.repair.rounds and not any(map(can_repair, problems)):
        raise ConfigError(
            "coding.repair.rounds: no problem of coding.problems has a public test, so there is no "
            "feedback for the model; use data with public tests, or set coding.repair.rounds=0"
        )


def check_template(config: DictConfig) -> None:
    """Check that the model's chat template takes tools. Models on the hub are not checked.

    Raises:
        ConfigError: the chat template takes no tools, so the model would never see them.
    """
    if not has_bash(config) or config.coding.bash.calls != Calls.tools:
        return
    model = config.actor_rollout_ref.model
    template = model.get("custom_chat_template") or chat_template(Path(str(model.path)))
    if template is not None and "tools" not in template:
        raise ConfigError(
            f"coding.bash.calls=tools: the chat template of {model.path} takes no tools; use a model "
            "that does, or coding.bash.calls=block"
        )


def chat_template(folder: Path) -> str | None:
    """Return the chat template in a model's folder; None if there is none."""
    if (file := folder / "chat_template.jinja").is_file():
        return file.read_text()
    if (file := folder / "tokenizer_config.json").is_file():
        template = json.loads(file.read_text()).get("chat_template")
        return None if template is None else json.dumps(template)
    return None


# ── Harbor tasks: environments must be available, and rewards usable ─────────────────────────────────


def check_tasks(config: DictConfig, problems: Sequence[Problem]) -> None:
    """Check that tasks can run in their environment, and that their rewards may be trained on.

    Raises:
        ConfigError: an agent that needs tasks gets a problem without one, no engine answers, no task can
            run, or no reward would be used.
    """
    from coding_model_project.harbor.environment.container import Engine

    _check_named(config, problems)
    where, accepted = config.coding.harbor.environment, config.coding.harbor.integrity
    tasks = {problem.id: _task(problem) for problem in problems if problem.task is not None}
    if where in ENGINES and tasks:
        try:
            asyncio.run(Engine(where).find())
        except EnvironmentFailed as error:
            raise ConfigError(f"coding.harbor.environment={where}: {error}") from error
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
