"""`coding.bash`: episodes of the bash agent."""

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.config_key import key
from coding_model_project.episodes.bash_messages import Calls


@dataclass
class BashConfig:
    """Settings of bash agent episodes. `recipes.harbor` enables them; other recipes have none."""

    turns: int = key(
        0,
        "Most commands of the bash agent in an episode on a Harbor task. 0 disables such episodes.",
        unit="turns",
    )
    calls: Calls = key(
        Calls.block,
        "The form of the model's commands: `block`, a code block tagged bash, or `tools`, calls of a "
        "tool `bash`, which the model's chat template must support (`tools`, role `tool`).",
    )
    reply_tokens: int | None = key(
        None,
        "Most tokens of a reply. null: an equal share of `data.max_response_length`, which holds the "
        "whole episode, observations included.",
        unit="tokens",
    )
    command_s: float = key(
        60.0,
        "Time limit of one command, after which it is killed and the model is informed.",
        unit="s",
    )
    total_s: float = key(
        600.0,
        "Time limit of an episode, replies included; then the verifier judges the work done. A task's "
        "own `[agent] timeout_sec` applies too.",
        unit="s",
    )
    output_bytes: int = key(
        4096,
        "Most bytes of a command's output that the model sees: beginning and end.",
        unit="bytes",
    )
    rooms: int = key(
        64,
        "Concurrent episodes, each in an environment of its own, in each of verl's "
        "`actor_rollout_ref.rollout.agent.num_workers`.",
        unit="rooms",
    )
