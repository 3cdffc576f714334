"""Checks that a task is fit to train on: its solution passes, doing nothing fails, no forgery pays."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from coding_model_project.concurrency import in_order
from coding_model_project.harbor.agents import Agent, Oracle, Script
from coding_model_project.harbor.forging import FORGERS, Forger
from coding_model_project.harbor.format.reward_rules import Rewards
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.tasks import Refused
from coding_model_project.harbor.integrity import Integrity
from coding_model_project.harbor.outcome import TrialOutcome
from coding_model_project.harbor.trial import Trials

RUNS = 3
"""Number of runs of a task's own solution, which must all earn the same reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of one task."""

    task: str
    problems: tuple[str, ...]
    """Reasons not to use the task, each with a fix if there is one."""
    integrity: Integrity | None = None
    """Integrity of the solution's reward."""
    runs: tuple[Rewards | None, ...] = ()
    """Rewards of the solution's runs; None for a run without a valid reward."""
    forged: tuple[str, ...] = ()
    """Forgeries that earned a reward of 1 or more."""
    failed: bool = False
    """True if an environment failed, so that the result says nothing about the task."""

    def line(self) -> dict[str, Any]:
        """Return the object that `harbor check` prints."""
        return {
            "task": self.task,
            "ok": not self.problems and not self.failed,
            "problems": list(self.problems),
            "integrity": self.integrity,
            "runs": [None if run is None else dict(run) for run in self.runs],
            "forged": list(self.forged),
        }


async def check(
    tasks: Iterable[Task | Refused],
    trials: Trials,
    *,
    concurrency: int,
    runs: int = RUNS,
    forgers: Sequence[Forger] = FORGERS,
) -> AsyncIterator[Checked]:
    """Check tasks concurrently, and yield results in the order of the tasks. Refused tasks do not run.

    Args:
        runs: number of runs of each task's own solution.
        forgers: forgeries to try on each task.
    """
    agents: list[Agent] = [*(Oracle() for _ in range(runs)), Script(""), *forgers]
    listed = list(tasks)
    work = ((one, agent) for one in listed if isinstance(one, Task) for agent in agents)
    ended = in_order(work, lambda given: trials.run(*given), at_once=concurrency)
    for one in listed:
        if isinstance(one, Refused):
            yield Checked(task=one.label, problems=(f"refused: InvalidTask: {one.reason}",))
            continue
        found = [await anext(ended) for _ in agents]
        forged = dict(zip(forgers, found[runs + 1 :], strict=True))
        yield _checked(found[:runs], found[runs], forged)


def _checked(
    solved: list[TrialOutcome], nothing: TrialOutcome, forged: dict[Forger, TrialOutcome]
) -> Checked:
    problems: list[str] = []
    first = solved[0]
    worst = min(solved, key=lambda one: -1.0 if one.reward is None else one.reward)
    if worst.reward is None or worst.reward < 1:
        earned = "no valid reward" if worst.reward is None else f"reward={worst.reward}"
        reasons = filter(None, (worst.exception or worst.cause, worst.reason))
        why = f" ({': '.join(reasons)})" if worst.reward is None else ""
        problems.append(f"its own solution earns {earned}{why}, expected at least 1")
    runs = tuple(one.rewards if one.reward_valid else None for one in solved)
    if len(counted := Counter(map(_shown, runs))) > 1:
        each = ", ".join(f"{number} × {rewards}" for rewards, number in counted.most_common())
        problems.append(
            f"its own solution earns different rewards in {len(runs)} runs: {each}; make solution and "
            "verifier independent of time, order and chance"
        )
    is_free = nothing.reward is not None and nothing.reward >= 1
    if is_free:
        problems.append(f"doing nothing earns reward={nothing.reward}, expected less than 1")
    paid = [one.name for one, got in forged.items() if (got.reward or 0) >= 1 and not is_free]
    if paid:
        problems.append(
            "agents that do not do the task earn a reward of 1: one that "
            f"{', one that '.join(paid)}; give the verifier an environment of its own "
            '(environment_mode = "separate"), and run the agent\'s files there as another user, who '
            "cannot write the reward"
        )
    return Checked(
        task=first.task.label,
        problems=tuple(problems),
        integrity=None if first.rewards is None else first.integrity,
        runs=runs,
        forged=tuple(paid),
        failed=any(one.failed for one in (*solved, nothing, *forged.values())),
    )


def _shown(rewards: Rewards | None) -> str:
    return "no valid reward" if rewards is None else str(dict(rewards))
