"""Integrity of a reward: whether the judged code could have forged it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from coding_model_project.config_key import key
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
    warm: int = key(
        0,
        "Containers that each worker starts ahead, for the most recently used images.",
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
            warm=self.warm,
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
