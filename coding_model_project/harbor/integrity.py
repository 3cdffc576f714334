"""Integrity of a reward: the code that it is for may have forged it, or cannot have."""

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
    """Where the agent's code ran while a verifier judged it."""

    isolated = "isolated"
    """In processes of its own, or not at all: the verifier's processes ran only trusted code."""
    in_process = "in_process"
    """In a process of the verifier's, or nobody can tell: the code may have given itself the reward."""

    @classmethod
    def of(cls, doubts: Sequence[str]) -> Integrity:
        """Of a verifier, by the reasons not to believe it."""
        return cls.in_process if doubts else cls.isolated


class Accepted(StrEnum):
    """The rewards that training may use."""

    isolated = "isolated"
    any = "any"


@dataclass
class HarborConfig:
    """Of problems that name a Harbor task, or have a harness."""

    environment: str = key(
        ROOMS,
        "Where tasks run: `rooms` of this machine's namespaces, containers of `docker` or `podman`, "
        "`harbor:TYPE` for Harbor's own environments, or `package.module:Factory` for yours "
        "(`docs/harbor.md`).",
    )
    integrity: Accepted = key(
        Accepted.isolated,
        "Rewards to train on, of Harbor verifiers and of a problem's harness. `isolated`: only those "
        "that the judged code cannot have forged; other samples are left out of the batch, counted in "
        "`judge/not_isolated` and named in ungradable.jsonl. `any`: all of them.",
    )
    containers: int | None = key(
        None,
        "Most containers in use at once on a node, by all its processes. null: `coding.bash.rooms` by "
        "each.",
        unit="containers",
    )
    warm: int = key(
        0,
        "Containers that each worker keeps started ahead, for the images asked for last.",
        unit="containers",
    )

    def place(self) -> TaskEnvironment:
        """Return where tasks run."""
        return TaskEnvironment(name=self.environment, containers=self.containers, warm=self.warm)


class NotIsolatedError(HarborError):
    """A reward that the agent's code may have forged, and that the configuration does not allow."""


def require(verdict: Verdict, accepted: Accepted) -> None:
    """Refuse a verdict that may not be trained on.

    Raises:
        NotIsolatedError: a Harbor verifier ran the agent's code in a process of its own, or a problem's
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
