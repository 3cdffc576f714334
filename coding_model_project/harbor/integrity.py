"""Integrity of a reward: whether the judged code can have forged it."""

# ruff: noqa: RUF009 - key() makes a dataclass field, as field() does.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from coding_model_project.config_key import key
from coding_model_project.errors import HarborError
from coding_model_project.grading.base import ROOMS, TaskEnvironment
from coding_model_project.types import Verdict


class Integrity(StrEnum):
    """The process in which the agent's code ran while a verifier judged it."""

    isolated = "isolated"
    """Its own process, or none: the verifier's processes ran only trusted code."""
    in_process = "in_process"
    """A process of the verifier, or an unknown one: the code may have given itself the reward."""

    @classmethod
    def of(cls, doubts: Sequence[str]) -> Integrity:
        """Return the integrity of a verifier's rewards, given the reasons for doubt."""
        return cls.in_process if doubts else cls.isolated


class Accepted(StrEnum):
    """The rewards that training may use."""

    isolated = "isolated"
    any = "any"


@dataclass
class HarborConfig:
    """Settings for problems that name a Harbor task or have a harness."""

    environment: str = key(
        ROOMS,
        "Environment of tasks: `rooms` made of this machine's namespaces, containers of `docker` or "
        "`podman`, `harbor:TYPE` for Harbor's own environments, or `package.module:Factory` for yours "
        "(`docs/harbor-environments.md`).",
    )
    integrity: Accepted = key(
        Accepted.isolated,
        "Rewards to train on, from Harbor verifiers and a problem's harness. `isolated`: only those "
        "that the judged code cannot have forged; other samples are dropped, counted in "
        "`judge/not_isolated` and listed in ungradable.jsonl. `any`: all rewards.",
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
        NotIsolatedError: a Harbor verifier ran the agent's code in its own process, or a problem's
            harness shared the program's process.
    """
    if accepted is Accepted.any or verdict.integrity == Integrity.isolated:
        return
    why = "its tests share the program's process (`harness`); give it tests of another kind"
    if verdict.rewards is not None:
        why = (
            "its verifier runs the agent's code in its own process (`harbor grade` says where); rewrite "
            "the verifier"
        )
    raise NotIsolatedError(
        f"{verdict.problem_id}: integrity={verdict.integrity}, and "
        f"coding.harbor.integrity=isolated: {why}, or set coding.harbor.integrity=any"
    )
