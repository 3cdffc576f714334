"""`coding.repair`: episodes of attempts and repairs."""

# ruff: noqa: RUF009 - key() makes a dataclass field, as field() does.

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coding_model_project.config_key import key


class RepairReward(StrEnum):
    """Which of an episode's attempts is rewarded."""

    final = "final"
    best = "best"


@dataclass
class RepairConfig:
    """Set by `recipes.repair`; `recipes.grpo` has no rounds."""

    rounds: int = key(
        0,
        "How often a program that fails a public test may be repaired: the model is shown that test and "
        "answers again, within the same episode.",
        unit="rounds",
    )
    attempt_tokens: int | None = key(
        None,
        "Longest answer of one attempt. null: an equal share of `data.max_response_length`, which holds "
        "the whole episode, observations included.",
        unit="tokens",
    )
    observation_bytes: int = key(
        600,
        "Longest test and outcome in what the model is shown; longer ones are cut.",
        unit="bytes",
    )
    reward: RepairReward = key(
        RepairReward.final,
        "`final` rewards the last attempt; `best` the one that is worth most after `discount`. What is "
        "reported as accepted is the last one in any case.",
    )
    discount: float = key(
        1.0,
        "For `reward=best`: an attempt's worth is multiplied by this for each repair.",
        unit="1",
    )
