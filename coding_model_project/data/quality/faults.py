"""Faults of problems that a preflight finds without running anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from coding_model_project.errors import DataError
from coding_model_project.grading.execution import checked_tests
from coding_model_project.types import GradedBy, Limits, Problem

RANGES = {
    "cpu_s": (0.01, 600.0),
    "wall_s": (0.01, 3600.0),
    "memory_mb": (8, 65_536),
    "output_kb": (1, 1_048_576),
}
"""Plausible range of each limit; a value outside has a wrong unit or is a mistake."""

Fault = tuple[str, str]
"""The kind of a fault and its detail."""


def faults(problems: Sequence[Problem]) -> list[list[Fault]]:
    """Return the faults of each problem, in the order of the problems."""
    times = Counter(problem.id for problem in problems)
    return [list(_faults(problem, times[problem.id])) for problem in problems]


def _faults(problem: Problem, times: int) -> Iterator[Fault]:
    if not problem.id.strip():
        yield "empty id", 'each problem needs its own id, such as "mine/1"'
    if times > 1:
        yield "duplicate id", f"{times} problems have it; rewards identify a problem by its id"
    if not problem.statement.strip():
        yield "empty statement", "the prompt would be empty"
    yield from ungradable(problem)
    wrong = [one for name in RANGES if (one := _out_of_range(problem.limits, name))]
    if wrong:
        yield "absurd limits", ", ".join(wrong)


def ungradable(problem: Problem) -> Iterator[Fault]:
    """Yield the fault for which no program gets a verdict, if the problem has one."""
    if problem.graded_by is not GradedBy.tests:
        return
    if not problem.hidden_tests:
        yield "no hidden tests", "only hidden tests earn reward; remove public: true from some"
        return
    try:
        checked_tests(problem, public=False)
    except DataError as error:
        yield "unusable", str(error).removeprefix(f"problem {problem.id}: ")


def _out_of_range(limits: Limits, name: str) -> str | None:
    value = getattr(limits, name)
    low, high = RANGES[name]
    return None if low <= value <= high else f"{name}={value:g}, expected {low:g} to {high:g}"
