"""`coding.bash`: episodes of the bash agent."""

# ruff: noqa: RUF009 - key() makes a dataclass field, as field() does.

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.config_key import key
from coding_model_project.episodes.bash_messages import Calls


@dataclass
class BashConfig:
    """Set by `recipes.harbor`; other recipes' samples are no episodes of the bash agent."""

    turns: int = key(
        0,
        "Commands that the bash agent may give in an episode on a Harbor task. 0: samples are no such "
        "episodes.",
        unit="turns",
    )
    calls: Calls = key(
        Calls.block,
        "The form in which the model gives commands: `block`, a code block tagged bash, or `tools`, "
        "calls of a tool `bash`, which the model's chat template must know (`tools`, role `tool`).",
    )
    reply_tokens: int | None = key(
        None,
        "Longest reply. null: an equal share of `data.max_response_length`, which holds the whole "
        "episode, observations included.",
        unit="tokens",
    )
    command_s: float = key(
        60.0, "How long one command may take; the model is told that it was killed.", unit="s"
    )
    total_s: float = key(
        600.0,
        "How long an episode may take, replies included; then the verifier judges what is there. A "
        "task's own `[agent] timeout_sec` applies too.",
        unit="s",
    )
    output_bytes: int = key(
        4096, "Most of a command's output that the model is shown: beginning and end.", unit="bytes"
    )
    rooms: int = key(
        64,
        "Episodes at once, each in an environment of its own, in each of verl's "
        "`actor_rollout_ref.rollout.agent.num_workers`.",
        unit="rooms",
    )
