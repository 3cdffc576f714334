"""`coding.agent`: samples that are the work of an agent of yours, which talks to the gateway."""

# ruff: noqa: RUF009 - key() makes a dataclass field, as field() does.

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coding_model_project.config_key import key


class AgentPlace(StrEnum):
    """The place in which an agent's command runs."""

    host = "host"
    """On this machine, as a process; it runs the model's commands by the gateway's /v1/shell."""
    room = "room"
    """In the task's room, as a program among others."""


class AgentEnding(StrEnum):
    """The end of an agent's work. After each of them the verifier judges what was done by then."""

    done = "done"
    """It ended by itself, with exit code 0."""
    crashed = "crashed"
    """It ended with another exit code or an exception, or was killed for its memory."""
    time = "time"
    """It was killed: `coding.agent.total_s`, or the task's own time, was over."""
    turns = "turns"
    """Its last request was refused: the sample's replies are used up."""
    context = "context"
    """Its last request was refused: a conversation does not fit into the model's context."""


class Trained(StrEnum):
    """The conversations of an agent that are trained on."""

    all = "all"
    main = "main"


@dataclass
class AgentConfig:
    """Set for `recipes.harbor` to train with an agent of yours; see `docs/harbor-agents.md`."""

    command: str | None = key(
        None,
        "Command of an agent that speaks OpenAI's chat completions, run by bash once for each sample. "
        "It gets `OPENAI_BASE_URL`, `OPENAI_API_KEY`, `OPENAI_MODEL` and the task in `TASK_FILE`. null: "
        "samples are episodes of the bash agent (`coding.bash`).",
    )
    factory: str | None = key(
        None,
        "In the place of a command, an agent in Python: `package.module:Factory`, called with `base_url` "
        "and `api_key` for each sample; the result is a `harbor.agents.Agent`.",
    )
    place: AgentPlace = key(
        AgentPlace.host,
        "Where the command runs: on this machine (`host`), or in the task's `room`, which needs "
        "`coding.harbor.environment=rooms`.",
    )
    folder: str | None = key(
        None,
        "The agent's files: its command's working directory on the host; in rooms they are at "
        "/opt/agent, read-only.",
    )
    env: dict[str, str] = key({}, "More environment variables of the command.")
    turns: int = key(50, "Most replies of the model in a sample.", unit="replies")
    reply_tokens: int | None = key(
        None,
        "Longest reply. null: what `data.max_response_length` has left of the conversation.",
        unit="tokens",
    )
    total_s: float = key(
        600.0,
        "How long the agent may work; then it is killed, and the verifier judges what is there. A "
        "task's own `[agent] timeout_sec` applies too.",
        unit="s",
    )
    command_s: float = key(60.0, "Longest command by /v1/shell.", unit="s")
    output_bytes: int = key(
        65_536, "Most of each stream of such a command that is returned.", unit="bytes"
    )
    train: Trained = key(
        Trained.all,
        "`all`: each conversation of a sample is trained on, with the sample's reward; of those beyond "
        "`conversations` the shortest are left out. `main`: only the one with most generated tokens.",
    )
    conversations: int = key(
        8, "Most conversations of a sample that are trained on.", unit="conversations"
    )
    request_bytes: int = key(4 << 20, "Largest request that is read.", unit="bytes")
    rooms: int = key(
        64,
        "Agents at once, each with an environment of its own, in each of verl's "
        "`actor_rollout_ref.rollout.agent.num_workers`.",
        unit="rooms",
    )

    @property
    def on(self) -> bool:
        """True if samples are an agent's work."""
        return self.command is not None or self.factory is not None
