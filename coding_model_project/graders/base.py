"""The one thing every grader does: turn a problem and a completion into a verdict."""

from __future__ import annotations

from typing import Protocol

from coding_model_project.types import Problem, Verdict

GRADER_VERSION = "3"
"""Raised by any change that can change a verdict; see "Scores change" in CHANGELOG.md."""


class Grader(Protocol):
    """Judges completions; safe to call concurrently."""

    async def grade(self, problem: Problem, completion: str) -> Verdict:
        """Judge one completion. Never raises because of the program.

        Raises:
            UngradableError: (SandboxError, CheckerError, DataError) no truthful verdict can be
                given.
        """
        ...
