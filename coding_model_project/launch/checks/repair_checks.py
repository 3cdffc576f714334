"""`coding.repair` in a run's configuration: whether it has episodes, and how long they may be."""

from __future__ import annotations

from omegaconf import DictConfig

from coding_model_project.data.problems import read_problems
from coding_model_project.errors import ConfigError
from coding_model_project.grading.observation import MIN_BYTES, can_repair


def has_episodes(config: DictConfig) -> bool:
    """Whether samples are episodes of `repair_loop`, and not verl's own of a single turn."""
    repair = config.coding.repair
    return repair.rounds > 0 or repair.attempt_tokens is not None


def attempt_tokens(config: DictConfig) -> int:
    """The longest attempt of an episode."""
    repair = config.coding.repair
    return repair.attempt_tokens or config.data.max_response_length // (repair.rounds + 1)


def check_values(config: DictConfig) -> None:
    """Raises:
    ConfigError: names the key that makes no sense.
    """
    repair, data = config.coding.repair, config.data
    if repair.observation_bytes < MIN_BYTES:
        raise ConfigError(
            f"coding.repair.observation_bytes={repair.observation_bytes}: set it to at least "
            f"{MIN_BYTES}, or the model can be shown nothing"
        )
    if not has_episodes(config):
        return
    if not 1 <= attempt_tokens(config) <= data.max_response_length:
        raise ConfigError(
            f"coding.repair.attempt_tokens={repair.attempt_tokens}: set it to at least 1, and at most "
            f"the whole episode's data.max_response_length={data.max_response_length}"
        )


def check_problems(config: DictConfig) -> None:
    """Raises:
    ConfigError: no problem can be repaired.
    """
    repair = config.coding.repair
    problems = (problem for path in config.coding.problems for problem in read_problems(path))
    if repair.rounds and not any(map(can_repair, problems)):
        raise ConfigError(
            "coding.repair.rounds: no problem of coding.problems has a public test, so the model can be "
            "told nothing; use data with public tests, or set coding.repair.rounds=0"
        )
