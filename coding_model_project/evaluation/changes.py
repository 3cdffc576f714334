"""Rejudging of stored completions, those with changed verdicts twice, and the causes of the changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from coding_model_project.concurrency import each
from coding_model_project.evaluation.plan import Sample
from coding_model_project.evaluation.results import Generated, Result, refuse_outage
from coding_model_project.evaluation.runner import judged
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.judge import Graders
from coding_model_project.grading.readings import CountedBy
from coding_model_project.progress import progress_bar

_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A stored completion and its previous verdict."""

    sample: Sample
    generated: Generated
    before: Result
    name: str
    """Name of the sample within its problem, as in its run."""


OpenJudge = Callable[[], AbstractAsyncContextManager[Graders]]
"""Opens a judge with the settings of the first judging."""


def judge_again(
    stored: Sequence[Stored],
    opened: OpenJudge,
    *,
    stop_early: bool,
    rule: CountedBy,
    grader_before: str,
) -> tuple[list[Result], list[Change]]:
    """Judge completions with the current grader and find the changes.

    A program whose verdict changed is judged once more without a cache: if the two new verdicts
    differ, its outcome is unstable, and the grader is not the cause.

    Returns:
        The new results in order, and the changes.

    Raises:
        SandboxError: the sandbox does not start, or failed to run a program.
    """

    async def judge(works: Sequence[Stored], name: str) -> list[Result]:
        async with opened() as graders:
            with progress_bar(name, len(works)) as advance:

                async def one(work: Stored) -> Result:
                    sample, made = work.sample, work.generated
                    result = await judged(
                        sample, made, graders.hidden, stop_early=stop_early, rule=rule
                    )
                    advance()
                    return result

                return await each(works, one, at_once=_AT_ONCE)

    results = asyncio.run(judge(stored, "judged"))
    refuse_outage(results, "nothing was written; run the same command again")
    graders = grader_before, GRADER_VERSION
    changes: dict[int, Change] = {}
    for number, (one, after) in enumerate(zip(stored, results, strict=True)):
        if one.before.outcome != after.outcome:
            changes[number] = Change(
                dataset=one.sample.dataset,
                problem=one.sample.problem.id,
                sample=one.name,
                before=one.before.outcome,
                after=after.outcome,
                cause=cause_of(one.before, after, graders=graders),
            )
    causes = Cause.limits, Cause.rules, Cause.sandbox
    doubtful = [number for number, change in changes.items() if change.cause in causes]
    if doubtful:
        again = asyncio.run(judge([stored[number] for number in doubtful], "again"))
        for number, result in zip(doubtful, again, strict=True):
            if result.outcome != changes[number].after:
                changes[number] = replace(changes[number], cause=Cause.unstable)
    return results, list(changes.values())


# ── changes and their causes ──────────────────────────────────────────────────────────────────────

_LIMITS = ("timeout", "memory_limit", "output_limit")


class Cause(StrEnum):
    """The first reason that explains why a stored completion's verdict changed."""

    no_verdict = "no_verdict"
    tests = "tests"
    program = "program"
    unstable = "unstable"
    limits = "limits"
    rules = "rules"
    sandbox = "sandbox"

    @property
    def meaning(self) -> str:
        """A short description of the cause."""
        return _MEANINGS[self]


_MEANINGS = {
    Cause.no_verdict: "ungradable, before or now",
    Cause.tests: "the problem's tests have changed",
    Cause.program: "a different program is extracted from the answer",
    Cause.unstable: "the program's outcome varies from run to run",
    Cause.limits: "a time, memory or output limit was hit, before or now",
    Cause.rules: "the grading rules have changed",
    Cause.sandbox: "the sandbox has changed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A completion whose verdict changed."""

    dataset: str
    """Name of the data set; for rollouts `train` or `validation`."""
    problem: str
    sample: str
    before: str
    after: str
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Counts of a data set before and after."""

    dataset: str
    judged: int
    """Samples with a verdict before and after."""
    accepted_before: int
    accepted_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    """The result of rejudging a run."""

    path: Path
    grader_before: str
    grader_after: str
    samples: int
    skipped: Mapping[str, int]
    """Numbers of samples that were not rejudged, by reason."""
    changes: tuple[Change, ...]
    datasets: tuple[Counted, ...]
    notes: tuple[str, ...]
    written: bool
    """True if the run's results were replaced."""

    def causes(self) -> list[tuple[Cause, int, int, int]]:
        """Return causes with the numbers of samples gained, lost, and failed in another way."""
        rows = []
        for cause in Cause:
            of_cause = [one for one in self.changes if one.cause is cause]
            gained = sum(one.after == "accepted" for one in of_cause)
            lost = sum(one.before == "accepted" for one in of_cause)
            if of_cause:
                rows.append((cause, gained, lost, len(of_cause) - gained - lost))
        return rows


def cause_of(before: Result, after: Result, *, graders: tuple[str, str]) -> Cause:
    """Return the first cause that explains two different results of one completion.

    Args:
        graders: `GRADER_VERSION` before and after.
    """
    if before.passed is None or after.passed is None:
        return Cause.no_verdict
    was, now = before.verdict, after.verdict
    if was.get("n_tests") not in (None, now["n_tests"]):
        return Cause.tests
    if before.program != after.program:
        return Cause.program
    if before.error in _LIMITS or after.error in _LIMITS:
        return Cause.limits
    if graders[0] != graders[1]:
        return Cause.rules
    return Cause.sandbox if was.get("sandbox") != now["sandbox"] else Cause.unstable


def count(rows: Iterable[tuple[Result, Result]]) -> tuple[Counted, ...]:
    """Count accepted samples before and after by data set, among those judged both times."""
    found: dict[str, list[tuple[bool, bool]]] = {}
    for before, after in rows:
        pairs = found.setdefault(after.dataset, [])
        if before.passed is not None and after.passed is not None:
            pairs.append((before.passed, after.passed))
    return tuple(
        Counted(
            dataset=dataset,
            judged=len(pairs),
            accepted_before=sum(before for before, _ in pairs),
            accepted_after=sum(after for _, after in pairs),
        )
        for dataset, pairs in found.items()
    )


def shown(changes: Sequence[Change], limit: int) -> list[str]:
    """Return lines with the first changes per cause and the number of others."""
    lines = []
    for cause in Cause:
        of_cause = [one for one in changes if one.cause is cause]
        lines += [
            f"{one.dataset} {one.problem} sample {one.sample}: {one.before} → {one.after} ({cause})"
            for one in of_cause[:limit]
        ]
        if len(of_cause) > limit:
            lines.append(f"… and {len(of_cause) - limit} more ({cause})")
    return lines
