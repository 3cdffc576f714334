"""The one thing every grader does: turn a problem and a completion into a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Protocol

from coding_model_project.errors import UngradableError
from coding_model_project.types import Problem, Verdict

GRADER_VERSION = "11"
"""Raised by any change that can change a verdict; see "Scores change" in CHANGELOG.md."""

ROOMS = "rooms"
"""The default environment of Harbor's tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """The environment that Harbor's tasks run in (`harbor.environment.factory.environments_of`)."""

    name: str = ROOMS
    containers: int | None = None
    """Of docker and podman: in use at once on a node, by all processes; None is no limit."""
    warm: int = 0
    """Of docker and podman: containers kept started ahead, for the images asked for last."""
    agent: str | None = None
    """Of rooms: a folder of the host that they have at /opt/agent, read-only."""


IN_ROOMS = TaskEnvironment()


def harbor_identity(environment: str) -> str:
    """Return the identity of `harbor.grader.HarborGrader`, which naming it here does not import."""
    return f"{GRADER_VERSION}/harbor/{environment}"


@cache
def math_judge() -> str:
    """Return math-verify's name and version; here so that naming it does not import the maths grader."""
    try:
        return f"math-verify {metadata.version('math-verify')}"
    except metadata.PackageNotFoundError:
        return "math-verify, not installed"


Outcome = Verdict | UngradableError
"""A completion's verdict, or why it has none."""


class Grader(Protocol):
    """Judges completions; safe to call concurrently."""

    async def grade(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion. Never raises because of the program.

        Raises:
            UngradableError: (SandboxError, CheckerError, DataError) no truthful verdict can be
                given.
        """
        ...


class CodeGrader(Protocol):
    """Judges programs that were found already; what `cache.CachedGrader` remembers the verdicts of."""

    @property
    def identity(self) -> str:
        """All but code and problem that a verdict depends on."""
        ...

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge a program as it is; None is a completion without code.

        Raises:
            UngradableError: as `Grader.grade`.
        """
        ...

    def answered_from_memory(self) -> None:
        """Take note of a sample that was judged without running anything."""
        ...
