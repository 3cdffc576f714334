"""Checks of the keys that make samples episodes: `coding.repair`, `coding.bash` and `coding.agent`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from coding_model_project.configs.schema import CodingConfig
from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import AUTO, ROOMS, TaskEnvironment
from coding_model_project.grading.observation import MIN_BYTES, can_repair
from coding_model_project.harbor.agent_config import AgentPlace, Trained
from coding_model_project.types import Problem

_OF_AGENTS = (
    *("turns", "reply_tokens", "total_s", "command_s", "output_bytes", "conversations"),
    *("request_bytes", "rooms"),
)
"""Keys of `coding.agent` that are numbers."""


def has_episodes(config: DictConfig) -> bool:
    """Return whether samples are episodes of `repair_loop` instead of verl's single-turn samples."""
    repair = config.coding.repair
    return repair.rounds > 0 or repair.attempt_tokens is not None


def has_agent(config: DictConfig) -> bool:
    """Return whether an agent at the gateway makes the samples (`gateway_loop`)."""
    agent = config.coding.agent
    return agent.command is not None or agent.factory is not None


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
    """Check the values of the three sections.

    Raises:
        ConfigError: a value is invalid; the message names the key.
    """
    _check_repair(config)
    if has_agent(config):
        _check_agent(config)
    elif has_bash(config):
        _check_bash(config)


def _check_repair(config: DictConfig) -> None:
    repair, longest = config.coding.repair, config.data.max_response_length
    if repair.observation_bytes < MIN_BYTES:
        raise ConfigError(
            f"coding.repair.observation_bytes={repair.observation_bytes}: set it to at least "
            f"{MIN_BYTES}, or no observation fits"
        )
    if has_episodes(config) and not 1 <= attempt_tokens(config) <= longest:
        raise ConfigError(
            f"coding.repair.attempt_tokens={repair.attempt_tokens}: set it to at least 1, and at most "
            f"the whole episode's data.max_response_length={longest}"
        )


def _check_bash(config: DictConfig) -> None:
    bash, longest = config.coding.bash, config.data.max_response_length
    numbers = [name for name, value in bash.items() if isinstance(value, int | float)]
    _check_agentic(config, "bash", numbers, "coding.bash.turns", "an episode of the bash agent")
    if not 1 <= reply_tokens(config) <= longest:
        raise ConfigError(
            f"coding.bash.reply_tokens={bash.reply_tokens}: set it to at most the whole episode's "
            f"data.max_response_length={longest}"
        )


def _check_agent(config: DictConfig) -> None:
    agent, environment = config.coding.agent, config.coding.harbor.environment
    if agent.command is not None and agent.factory is not None:
        raise ConfigError("coding.agent.command and coding.agent.factory: set one of them")
    _check_agentic(config, "agent", _OF_AGENTS, "coding.agent", "an agent's work")
    if agent.folder is not None and not Path(agent.folder).expanduser().is_dir():
        raise ConfigError(f"coding.agent.folder={agent.folder}: no such folder")
    if agent.factory is not None:
        from coding_model_project.harbor.gateway.agents import factory_of

        factory_of(agent.factory)
        if agent.place == AgentPlace.room:
            raise ConfigError(
                "coding.agent.place=room: an agent in Python runs on the host; set "
                "coding.agent.place=host, or coding.agent.command"
            )
    if agent.place == AgentPlace.room and environment not in (AUTO, ROOMS):
        raise ConfigError(
            f"coding.agent.place=room and coding.harbor.environment={environment}: agents work in rooms "
            f"only; set coding.harbor.environment={ROOMS} or coding.agent.place=host"
        )
    estimator = config.algorithm.adv_estimator
    if agent.train != Trained.main and agent.conversations > 1 and estimator != "grpo":
        raise ConfigError(
            f"algorithm.adv_estimator={estimator}: verl gives several conversations of a sample one "
            "advantage with grpo only; set coding.agent.train=main"
        )


def _check_agentic(
    config: DictConfig, section: str, numbers: Sequence[str], key: str, work: str
) -> None:
    """Check the numbers of a section of agents, and the keys that no agent goes with."""
    for name in numbers:
        if (value := config.coding[section][name]) is not None and value <= 0:
            raise ConfigError(f"coding.{section}.{name}={value}: set it to a number above 0")
    if has_episodes(config):
        raise ConfigError(
            f"{key} and coding.repair: a sample uses only one of them; set coding.repair.rounds=0 and "
            "coding.repair.attempt_tokens=null"
        )
    if config.coding.reward.shaping.format_weight:
        raise ConfigError(
            f"coding.reward.shaping.format_weight: {work} has no required form; set it to 0"
        )


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
