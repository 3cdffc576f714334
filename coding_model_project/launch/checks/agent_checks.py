"""Checks of `coding.agent` in a run's configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from coding_model_project.configs.schema import CodingConfig
from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import ROOMS, TaskEnvironment
from coding_model_project.harbor.agent_config import AgentPlace, Trained
from coding_model_project.launch.checks import repair_checks

_NUMBERS = (
    *("turns", "reply_tokens", "total_s", "command_s", "output_bytes", "conversations"),
    *("request_bytes", "rooms"),
)


def has_agent(config: DictConfig) -> bool:
    """Return whether an agent at the gateway makes the samples (`gateway_loop`)."""
    agent = config.coding.agent
    return agent.command is not None or agent.factory is not None


def task_environment(coding: CodingConfig) -> TaskEnvironment:
    """Return the environment that an agent's tasks run in."""
    place = coding.harbor.place()
    if coding.agent.folder is None or coding.agent.place is not AgentPlace.room:
        return place
    return replace(place, agent=str(Path(coding.agent.folder).expanduser()))


def check_values(config: DictConfig) -> None:
    """Check the values of `coding.agent`.

    Raises:
        ConfigError: a value is invalid; the message names the key.
    """
    if not has_agent(config):
        return
    agent = config.coding.agent
    if agent.command is not None and agent.factory is not None:
        raise ConfigError("coding.agent.command and coding.agent.factory: set one of them")
    for name in _NUMBERS:
        if agent[name] is not None and agent[name] <= 0:
            raise ConfigError(f"coding.agent.{name}={agent[name]}: set it to a number above 0")
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
    if agent.place == AgentPlace.room and config.coding.harbor.environment != ROOMS:
        raise ConfigError(
            f"coding.agent.place=room and coding.harbor.environment="
            f"{config.coding.harbor.environment}: agents work in rooms only; set "
            f"coding.harbor.environment={ROOMS} or coding.agent.place=host"
        )
    if repair_checks.has_episodes(config):
        raise ConfigError(
            "coding.agent and coding.repair: a sample uses only one of them; set "
            "coding.repair.rounds=0 and coding.repair.attempt_tokens=null"
        )
    if config.coding.reward.shaping.format_weight:
        raise ConfigError(
            "coding.reward.shaping.format_weight: an agent's work has no required form; set it to 0"
        )
    estimator = config.algorithm.adv_estimator
    if agent.train != Trained.main and agent.conversations > 1 and estimator != "grpo":
        raise ConfigError(
            f"algorithm.adv_estimator={estimator}: verl gives several conversations of a sample one "
            "advantage with grpo only; set coding.agent.train=main"
        )
