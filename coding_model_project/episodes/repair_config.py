"""`coding.repair`: episodes of attempts and repairs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coding_model_project.config_key import key


class RepairReward(StrEnum):
    """The attempt of an episode that is rewarded."""

    final = "final"
    best = "best"


@dataclass
class RepairConfig:
    """Settings of repair episodes. `recipes.repair` enables them; `recipes.grpo` has no rounds."""

    rounds: int = key(
        0,
        "Most repairs of a program that fails a public test: the model sees that test and answers again, "
        "within the same episode. 0 disables repair.",
        unit="rounds",
    )
    attempt_tokens: int | None = key(
        None,
        "Most tokens of one attempt's answer. null: an equal share of `data.max_response_length`, which "
        "holds the whole episode, observations included.",
        unit="tokens",
    )
    observation_bytes: int = key(
        600,
        "Most bytes of the test and its outcome that the model sees; longer ones are truncated.",
        unit="bytes",
    )
    reward: RepairReward = key(
        RepairReward.final,
        "`final` rewards the last attempt, `best` the one with the highest reward after `discount`. The "
        "reported acceptance is always the last attempt's.",
    )
    discount: float = key(
        1.0,
        "Factor on an attempt's reward for each repair before it, with `reward=best`.",
        unit="1",
    )
