"""Judged samples of training problems, of which SFT rows, preference pairs and repair traces are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from coding_model_project.data.program_identity import normal_form
from coding_model_project.types import ErrorType, Problem

GOLD = "gold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A judged completion of a problem, or the problem's own solution."""

    problem: Problem
    completion: str
    code: str | None
    """Its program; None without one."""
    error: ErrorType | None = None
    """The group of its first failing test's error; None if it is accepted."""
    tokens: int | None = None
    """The length of the completion; None for a gold solution."""
    origin: str = GOLD
    """The evaluation and sample that it comes from, or "gold"."""

    @property
    def is_gold(self) -> bool:
        return self.origin == GOLD

    @property
    def program(self) -> str:
        """The program; the whole completion if it has none."""
        return self.code or self.completion


def gold_samples(problems: Iterable[Problem]) -> list[Sample]:
    """Return the problems' own solutions."""
    return [
        Sample(problem=one, completion=code, code=code) for one in problems for code in one.gold
    ]


def distinct(samples: Iterable[Sample]) -> list[Sample]:
    """Return the first of equivalent programs of a problem."""
    seen: dict[tuple[str, str], Sample] = {}
    for one in samples:
        form = normal_form(one.program, one.problem.language)
        seen.setdefault((one.problem.id, form), one)
    return list(seen.values())


def by_problem(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Group samples by the ids of their problems."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for one in samples:
        groups[one.problem.id].append(one)
    return groups
