"""Two verdicts on one completion, and the cause for which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from coding_model_project.evaluation.results import Result
from coding_model_project.runs.rollouts import Rollout

_LIMITS = ("timeout", "memory_limit", "output_limit")
NO_RECORD = "not recorded"
"""The program's hash in rollouts of versions that did not keep it."""


class Cause(StrEnum):
    """The reason why a stored completion has another verdict today, the first that holds."""

    no_verdict = "no_verdict"
    tests = "tests"
    program = "program"
    unstable = "unstable"
    limits = "limits"
    rules = "rules"
    sandbox = "sandbox"

    @property
    def meaning(self) -> str:
        """The cause in a few words."""
        return _MEANINGS[self]


_MEANINGS = {
    Cause.no_verdict: "could not be judged, then or now",
    Cause.tests: "the problem has other tests",
    Cause.program: "another program is found in the answer",
    Cause.unstable: "the program's outcome changes from run to run",
    Cause.limits: "a limit of time, memory or output decided, then or now",
    Cause.rules: "the same program is judged by other rules",
    Cause.sandbox: "the same rules in another sandbox",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The parts of a verdict that are compared."""

    passed: bool | None
    """None if it could not be judged."""
    error: str | None
    program: str | None
    """The program's hash; None without a program, `NO_RECORD` where it was not kept."""
    extraction: str
    """The rule that found the program."""
    n_tests: int | None
    sandbox: str

    @classmethod
    def of_result(cls, result: Result) -> Judgement:
        """Read a sample of an evaluation."""
        kept = result.verdict
        return cls(
            passed=result.passed,
            error=result.error,
            program=result.program,
            extraction=str(kept.get("extraction", "")),
            n_tests=kept.get("n_tests"),
            sandbox=str(kept.get("sandbox", "")),
        )

    @classmethod
    def of_rollout(cls, row: Rollout) -> Judgement:
        """Read a sample of a training."""
        kept = row.verdict
        return cls(
            passed=kept["error"] is None,
            error=kept["error"],
            program=kept.get("program", NO_RECORD),
            extraction=str(kept.get("extraction", "")),
            n_tests=kept.get("n_tests"),
            sandbox=str(kept.get("sandbox", "")),
        )

    @property
    def outcome(self) -> str:
        """The verdict in a word."""
        if self.passed is None:
            return "ungradable"
        return "accepted" if self.passed else str(self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One completion whose verdict is another one today."""

    dataset: str
    """Of a training's rollouts: `train` or `validation`."""
    problem: str
    sample: str
    before: str
    after: str
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One data set before and after."""

    dataset: str
    judged: int
    """Samples with a verdict both times."""
    accepted_before: int
    accepted_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    """One run's samples judged again."""

    path: Path
    grader_before: str
    grader_after: str
    samples: int
    skipped: Mapping[str, int]
    """Samples that were not judged again, by the reason."""
    changes: tuple[Change, ...]
    datasets: tuple[Counted, ...]
    notes: tuple[str, ...]
    written: bool
    """The run's numbers are today's now."""

    def causes(self) -> list[tuple[Cause, int, int, int]]:
        """Return causes with the number of samples gained, lost, and failed in another way."""
        counted = Counter((one.cause, _kind(one)) for one in self.changes)
        rows = [
            (cause, counted[cause, "gained"], counted[cause, "lost"], counted[cause, "other"])
            for cause in Cause
        ]
        return [row for row in rows if any(row[1:])]


def cause_of(before: Judgement, after: Judgement, *, graders: tuple[str, str]) -> Cause:
    """Return the first cause that explains two different judgements of one completion.

    Args:
        graders: `GRADER_VERSION` of the first and of the second.
    """
    if before.passed is None or after.passed is None:
        return Cause.no_verdict
    if before.n_tests is not None and before.n_tests != after.n_tests:
        return Cause.tests
    known = before.program != NO_RECORD
    if before.program != after.program if known else before.extraction != after.extraction:
        return Cause.program
    if before.error in _LIMITS or after.error in _LIMITS:
        return Cause.limits
    if graders[0] != graders[1]:
        return Cause.rules
    return Cause.sandbox if before.sandbox != after.sandbox else Cause.unstable


def count(rows: Iterable[tuple[str, Judgement, Judgement]]) -> tuple[Counted, ...]:
    """Count accepted samples before and after, by data set; only of those judged both times."""
    found: dict[str, list[tuple[bool, bool]]] = {}
    for dataset, before, after in rows:
        pairs = found.setdefault(dataset, [])
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


def _kind(change: Change) -> str:
    if change.after == "accepted":
        return "gained"
    return "lost" if change.before == "accepted" else "other"


def shown(changes: Sequence[Change], most: int) -> list[str]:
    """Return lines of the first changes of each cause, and how many are left out."""
    lines = []
    for cause in Cause:
        of_cause = [one for one in changes if one.cause is cause]
        lines += [
            f"{one.dataset} {one.problem} sample {one.sample}: {one.before} → {one.after} ({cause})"
            for one in of_cause[:most]
        ]
        if len(of_cause) > most:
            lines.append(f"… and {len(of_cause) - most} more ({cause})")
    return lines
