"""Is a task fit to train on: its own solution must pass, doing nothing must not, and nobody can forge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from coding_model_project.harbor.agents import Oracle, Script
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.tasks import Refused
from coding_model_project.harbor.grade_tasks import Graded, grade
from coding_model_project.harbor.integrity import Integrity
from coding_model_project.harbor.trial import Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One task's line."""

    task: str
    problems: tuple[str, ...]
    """Why the task should not be used; each names the way out where there is one."""
    integrity: Integrity | None
    """Of the solution's reward."""
    failed: bool
    """An environment failed: nothing is known about the task."""

    def line(self) -> dict[str, Any]:
        """The object that `harbor check` prints."""
        return {
            "task": self.task,
            "ok": not self.problems and not self.failed,
            "problems": list(self.problems),
            "integrity": self.integrity,
        }


async def check(
    tasks: Iterable[Task | Refused], trials: Trials, *, concurrency: int
) -> AsyncIterator[Checked]:
    """Check tasks, some at once; in their order."""
    listed = list(tasks)
    solved = grade(listed, trials, lambda _: Oracle(), concurrency=concurrency)
    results = [graded async for graded in solved]
    idle = grade(listed, trials, lambda _: Script(""), concurrency=concurrency)
    number = 0
    async for nothing in idle:
        yield _checked(results[number], nothing)
        number += 1


def _checked(solved: Graded, nothing: Graded) -> Checked:
    problems: list[str] = []
    if solved.outcome is None:
        problems.append(f"refused: {solved.exception}")
    elif solved.reward is None or solved.reward < 1:
        said = "no valid reward" if solved.reward is None else f"reward={solved.reward}"
        problems.append(f"its own solution earns {said}, expected at least 1")
    if nothing.reward is not None and nothing.reward >= 1:
        problems.append(f"doing nothing earns reward={nothing.reward}, expected less than 1")
    if solved.integrity is Integrity.in_process:
        problems.append(
            f"the reward can be forged ({'; '.join(solved.doubts)}): have the verifier run the "
            "solution as a program and check what it prints"
        )
    return Checked(
        task=solved.task,
        problems=tuple(problems),
        integrity=solved.integrity,
        failed=solved.failed or nothing.failed,
    )
