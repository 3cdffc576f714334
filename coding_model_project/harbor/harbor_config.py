"""Settings of Harbor tasks: `coding.harbor`, where they run and which rewards count; and `coding.agent`:
the user's own agent, which talks to the gateway.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from coding_model_project.config_key import Option, key
from coding_model_project.errors import HarborError
from coding_model_project.grading.base import AUTO, TaskEnvironment
from coding_model_project.types import Verdict

if TYPE_CHECKING:
    from coding_model_project.harbor.format.task import Step


class Integrity(StrEnum):
    """The environment in which a verifier ran."""

    isolated = "isolated"
    """One of its own, where no agent worked. Its reward is forged only if it runs the agent's files."""
    in_process = "in_process"
    """The agent's, whose files decide what the verifier runs: the agent may have written the reward."""

    @classmethod
    def of(cls, *steps: Step) -> Integrity:
        """Return the integrity of rewards from these steps' verifiers."""
        apart = all(step.verifier_environment is not None for step in steps)
        return cls.isolated if apart else cls.in_process


class Accepted(StrEnum):
    """The rewards that training may use."""

    isolated = "isolated"
    any = "any"


@dataclass
class HarborConfig:
    """Settings for problems that name a Harbor task or have a harness."""

    environment: str = key(
        AUTO,
        "Environment of tasks: `rooms` made of this machine's namespaces, containers of `docker` or "
        "`podman`, `auto` for rooms where a task needs nothing but a system and containers for others, "
        "`harbor:TYPE` for Harbor's own environments, or `package.module:Factory` for yours, such as a "
        "sandbox factory of the tinker cookbook (`docs/harbor-environments.md`).",
    )
    integrity: Accepted = key(
        Accepted.any,
        "Rewards to train on. `any`: also those of Harbor verifiers that run in their agent's "
        "environment, and of a problem's harness, both of which the judged code can forge; the start of "
        "a training says how many problems have such rewards. `isolated`: no others than those of "
        "verifiers with an environment of their own; other samples are dropped, counted in "
        "`judge/not_isolated` and listed in ungradable.jsonl.",
    )
    containers: int | None = key(
        None,
        "Maximum containers in use at once on a node, across all processes. null: "
        "`coding.bash.rooms` for each process.",
        unit="containers",
    )
    pass_env: list[str] = key(
        [],
        "Names of this machine's environment variables that tasks may have. A task asks for one by "
        "`${NAME}` in its task.toml.",
    )

    def place(self) -> TaskEnvironment:
        """Return the environment of tasks."""
        return TaskEnvironment(
            name=self.environment,
            containers=self.containers,
            pass_env=tuple(self.pass_env),
        )


class NotIsolatedError(HarborError):
    """A reward that the agent's code may have forged, which the configuration does not allow."""


def require(verdict: Verdict, accepted: Accepted) -> None:
    """Raise if training may not use a verdict.

    Raises:
        NotIsolatedError: a Harbor verifier ran in its agent's environment, or a problem's harness shared
            the program's process.
    """
    if accepted is Accepted.any or verdict.integrity == Integrity.isolated:
        return
    why = "its tests share the program's process (`harness`); give it tests of another kind"
    if verdict.rewards is not None:
        why = (
            "its verifier runs in the agent's environment; give it one of its own "
            '(environment_mode = "separate")'
        )
    raise NotIsolatedError(
        f"{verdict.problem_id}: integrity={verdict.integrity}, and "
        f"coding.harbor.integrity=isolated: {why}, or set coding.harbor.integrity=any"
    )


class AgentPlace(StrEnum):
    """The place where an agent's command runs."""

    host = "host"
    """A process on this machine, which runs the model's commands through the gateway's /v1/shell."""
    room = "room"
    """A program in the task's room."""


class AgentEnding(StrEnum):
    """The end of an agent's work. After each ending, the verifier judges the work so far."""

    done = "done"
    """Exit with code 0."""
    crashed = "crashed"
    """Exit with another code, or killed for its memory use."""
    time = "time"
    """Killed after `coding.agent.total_s` or the task's own timeout."""
    turns = "turns"
    """Last request refused: the sample has no replies left."""
    context = "context"
    """Last request refused: a conversation does not fit into the model's context."""


class Trained(StrEnum):
    """The conversations of an agent to train on."""

    all = "all"
    main = "main"
    tools = "tools"
    """Without those that were offered no tools, such as titles and memories."""


@dataclass
class AgentConfig:
    """Settings of `recipes.harbor` for training with your own agent; see `docs/harbor-agents.md`."""

    command: str | None = key(
        None,
        "Command of an agent that uses an API of OpenAI or Anthropic. bash runs it once for each sample "
        "with `OPENAI_BASE_URL`, `OPENAI_API_KEY`, `ANTHROPIC_BASE_URL` and others, and the task in "
        "`TASK_FILE`. null: samples are episodes of the bash agent (`coding.bash`).",
        option=Option(
            "Let this command work on each task, an agent that calls the model through the gateway. "
            "Default: the bash agent.",
            "--agent",
            metavar="COMMAND",
        ),
    )
    place: AgentPlace = key(
        AgentPlace.host,
        "Place where the command runs: this machine (`host`), or the task's `room`, which needs "
        "`coding.harbor.environment=rooms` or `auto`.",
        option=Option("Run the agent on this machine or in the task's room.", "--agent-place"),
    )
    folder: str | None = key(
        None,
        "Folder of the agent's files: the command's working directory on the host, mounted read-only at "
        "/opt/agent in rooms.",
        option=Option(
            "Folder of the agent's files: its working directory here, /opt/agent in rooms.",
            "--agent-folder",
        ),
    )
    env: dict[str, str] = key({}, "Additional environment variables of the command.")
    turns: int = key(50, "Maximum replies of the model in a sample.", unit="replies")
    reply_tokens: int | None = key(
        None,
        "Maximum length of a reply. null: the conversation's remaining `data.max_response_length`.",
        unit="tokens",
    )
    total_s: float = key(
        600.0,
        "Time limit of the agent, after which it is killed and the verifier judges its work so far. A "
        "task's own `[agent] timeout_sec` applies too.",
        unit="s",
    )
    command_s: float = key(60.0, "Time limit of a /v1/shell command.", unit="s")
    output_bytes: int = key(
        65_536, "Maximum output returned from each stream of a /v1/shell command.", unit="bytes"
    )
    train: Trained = key(
        Trained.all,
        "`all`: train on each conversation of a sample, with the sample's reward; drop the shortest of "
        "more than `conversations`. `main`: train only on the one with the most generated tokens. "
        "`tools`: as `all`, without conversations that were offered no tools, such as titles.",
    )
    conversations: int = key(
        8, "Maximum conversations of a sample to train on.", unit="conversations"
    )
    request_bytes: int = key(4 << 20, "Maximum size of a request.", unit="bytes")
    rooms: int = key(
        64,
        "Maximum agents at once, each in its own environment, in each of verl's "
        "`actor_rollout_ref.rollout.agent.num_workers`.",
        unit="rooms",
    )

    @property
    def on(self) -> bool:
        """True if samples are an agent's work."""
        return self.command is not None
