"""Many tasks at once: graded, or checked for whether they are fit to train on.

A task is fit if its solution passes, doing nothing fails, and no known forgery pays. Forgeries are agents
that do not do the task. Those that need a program to hide in run the task's own solution first, then
replace its files. An invalid task is reported and does not stop the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import yaml

from coding_model_project.concurrency import in_order
from coding_model_project.harbor.agents import Agent, NonZeroAgentExitCodeError, Oracle, Script
from coding_model_project.harbor.environment.base import Environment
from coding_model_project.harbor.format.reward_rules import Rewards
from coding_model_project.harbor.format.task import Step, Task
from coding_model_project.harbor.format.tasks import Refused
from coding_model_project.harbor.harbor_config import Integrity
from coding_model_project.harbor.outcome import TrialOutcome
from coding_model_project.harbor.trial import Trials


@dataclass(slots=True, kw_only=True)
class Totals:
    """Counts of graded tasks by main reward, or by the reason that it is invalid."""

    tasks: int = 0
    full: int = 0
    """Number of tasks that earned a reward of 1 or more."""
    partial: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    short: list[str] = field(default_factory=list)
    """Names of the tasks that earned a valid reward below 1."""
    without: list[str] = field(default_factory=list)
    """Names of the tasks without a valid reward, such as refused ones."""
    in_process: list[str] = field(default_factory=list)
    """Names of the tasks whose reward the agent's code may have forged."""
    failed: bool = False
    """True if an environment failed."""

    def add(self, graded: TrialOutcome | Refused) -> None:
        self.tasks += 1
        if isinstance(graded, Refused):
            self.invalid["refused"] += 1
            self.without.append(graded.label)
            return
        name, reward = graded.task.label, graded.reward
        self.failed = self.failed or graded.failed
        if graded.rewards is not None and graded.integrity is Integrity.in_process:
            self.in_process.append(name)
        if reward is None:
            self.invalid[graded.cause] += 1
            self.without.append(name)
        elif reward >= 1:
            self.full += 1
        else:
            self.partial += reward > 0
            self.short.append(name)

    def __str__(self) -> str:
        n_invalid = self.invalid.total()
        nothing = self.tasks - self.full - self.partial - n_invalid
        causes = ", ".join(f"{cause} {n}" for cause, n in self.invalid.most_common())
        return (
            f"{self.tasks} tasks: reward 1: {self.full}, partial: {self.partial}, 0: {nothing}, "
            f"invalid: {n_invalid}{f' ({causes})' if causes else ''}"
        )


def grade(
    work: Iterable[tuple[Task | Refused, Agent]], trials: Trials, *, concurrency: int
) -> AsyncIterator[TrialOutcome | Refused]:
    """Run agents on tasks concurrently, and yield the results in the order of the tasks."""

    async def one(given: tuple[Task | Refused, Agent]) -> TrialOutcome | Refused:
        task, agent = given
        return task if isinstance(task, Refused) else await trials.run(task, agent)

    return in_order(work, one, at_once=concurrency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forger:
    """An agent that tries one forgery. See `agents.Agent`."""

    name: str
    script: str
    solves_first: bool = False
    """True if the task's own solution runs first, and the script replaces its files."""

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """See `Agent.run`."""
        if self.solves_first:
            await environment.run_command("touch /tmp/.before; sleep 0.02", timeout_s=10)
            await Oracle().run(task, step, environment)
        try:
            await Script(self.script).run(task, step, environment)
        except NonZeroAgentExitCodeError:
            return  # the forgery did what it could


def _read_forgers() -> Iterator[Forger]:
    """Read the forgeries, in the order of their runs."""
    file = files("coding_model_project.harbor").joinpath("forgeries.yaml")
    given = yaml.safe_load(file.read_text("utf-8"))

    def filled(script: str, **more: str) -> str:
        parts = {**given["parts"], **more}
        found = re.sub(r"@(\w+)@", lambda match: parts[match[1]], script)
        return found if found == script else filled(found, **more)

    for name, script in given["scripts"].items():
        yield Forger(name=name, script=filled(script))
    for name, programs in given["programs"].items():
        yield Forger(name=name, script=filled(given["replace"], **programs), solves_first=True)


FORGERS = tuple(_read_forgers())
"""All forgeries of forgeries.yaml."""

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
    if (
        len(
            counted := Counter("no valid reward" if one is None else str(dict(one)) for one in runs)
        )
        > 1
    ):
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
