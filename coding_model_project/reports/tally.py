"""Sums over a run's rollouts, computed in one pass, for charts and the choice of samples.

Memory grows with the number of (step, problem) pairs, not with the length of the texts.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from coding_model_project.data.training.rows import source_of
from coding_model_project.runs.rollouts import Rollout
from coding_model_project.types import ErrorType

ACCEPTED = "accepted"


@dataclass(slots=True)
class Group:
    """The samples of one problem at one step."""

    n: int = 0
    accepted: int = 0
    reward: float = 0.0


@dataclass(slots=True)
class StepTally:
    """The samples of one step and split."""

    n: int = 0
    groups: dict[str, Group] = field(default_factory=dict)
    """Groups by problem."""
    verdicts: Counter[str] = field(default_factory=Counter)
    """Counts of accepted samples and of each error group."""
    parts: dict[str, float] = field(default_factory=dict)
    """Sum of each reward part."""
    tokens: array[int] = field(default_factory=lambda: array("I"))
    n_public: int = 0
    """Samples with a verdict on public tests."""
    n_public_only: int = 0
    """Samples that passed the public tests but failed a hidden one."""
    judge_s: float = 0.0

    def add(self, row: Rollout) -> None:
        error = row.verdict.get("error")
        group = self.groups.setdefault(row.problem, Group())
        group.n += 1
        group.accepted += error is None
        group.reward += row.reward
        self.n += 1
        self.verdicts[error_group(error)] += 1
        for part, value in row.reward_parts.items():
            self.parts[part] = self.parts.get(part, 0.0) + value
        self.tokens.append(row.tokens)
        public = row.verdict.get("public_passed")
        self.n_public += public is not None
        self.n_public_only += bool(public) and error is not None
        self.judge_s += _number(row.verdict, "judge_s")

    def accepted_rates(self) -> list[float]:
        """Return the share of accepted samples per problem."""
        return [group.accepted / group.n for group in self.groups.values()]

    def rewards(self) -> list[float]:
        """Return the mean reward per problem."""
        return [group.reward / group.n for group in self.groups.values()]

    def by_source(self) -> dict[str, StepTally]:
        """Return tallies by data source, with groups only."""
        tallies: dict[str, StepTally] = {}
        for problem, group in self.groups.items():
            tallies.setdefault(source_of(problem), StepTally()).groups[problem] = group
        return tallies


@dataclass(slots=True)
class RunTally:
    """A run's samples, by split and step."""

    splits: dict[str, dict[int, StepTally]] = field(default_factory=dict)

    def add(self, row: Rollout) -> None:
        self.splits.setdefault(row.split, {}).setdefault(row.step, StepTally()).add(row)

    def forget(self, split: str, step: int) -> None:
        """Drop the samples of a step that is repeated."""
        self.splits.get(split, {}).pop(step, None)

    @property
    def n(self) -> int:
        return sum(step.n for step in self._all())

    @property
    def tokens(self) -> int:
        return sum(sum(step.tokens) for step in self._all())

    @property
    def judge_s(self) -> float:
        return sum(step.judge_s for step in self._all())

    def _all(self) -> Iterator[StepTally]:
        return (step for split in self.splits.values() for step in split.values())

    def steps(self, split: str) -> dict[int, StepTally]:
        """Return a split's steps in order."""
        return dict(sorted(self.splits.get(split, {}).items()))


def error_group(error: str | None) -> str:
    """Return `accepted`, or the group of an error type."""
    if error is None:
        return ACCEPTED
    # Runs of other versions may have unknown error types.
    return str(ErrorType(error).group) if error in ErrorType.__members__ else error


def _number(values: Mapping[str, Any], key: str) -> float:
    value = values.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0
