"""Checks of `coding.repair` in a run's configuration."""

from __future__ import annotations

from collections.abc import Iterable

from omegaconf import DictConfig

from coding_model_project.errors import ConfigError
from coding_model_project.grading.observation import MIN_BYTES, can_repair
from coding_model_project.types import Problem


def has_episodes(config: DictConfig) -> bool:
    """Return whether samples are episodes of `repair_loop` instead of verl's single-turn samples."""
    repair = config.coding.repair
    return repair.rounds > 0 or repair.attempt_tokens is not None


def attempt_tokens(config: DictConfig) -> int:
    """Return the maximum number of tokens of an episode's attempt."""
    repair = config.coding.repair
    return repair.attempt_tokens or config.data.max_response_length // (repair.rounds + 1)


def check_values(config: DictConfig) -> None:
    """Check the values of `coding.repair`.

    Raises:
        ConfigError: a value is invalid; the message names the key.
    """
    repair, data = config.coding.repair, config.data
    if repair.observation_bytes < MIN_BYTES:
        raise ConfigError(
            f"coding.repair.observation_bytes={repair.observation_bytes}: set it to at least "
            f"{MIN_BYTES}, or no observation fits"
        )
    if not has_episodes(config):
        return
    if not 1 <= attempt_tokens(config) <= data.max_response_length:
        raise ConfigError(
            f"coding.repair.attempt_tokens={repair.attempt_tokens}: set it to at least 1, and at most "
            f"the whole episode's data.max_response_length={data.max_response_length}"
        )


def check_problems(config: DictConfig, problems: Iterable[Problem]) -> None:
    """Raise ConfigError if repair is on but no problem can be repaired."""
    if config.coding.repair.rounds and not any(map(can_repair, problems)):
        raise ConfigError(
            "coding.repair.rounds: no problem of coding.problems has a public test, so there is no "
            "feedback for the model; use data with public tests, or set coding.repair.rounds=0"
        )
