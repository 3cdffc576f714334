"""Values that are computed once per problem, and dropped with it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from coding_model_project.types import Problem

Value = TypeVar("Value")


class PerProblem(Generic[Value]):
    """A function of a problem that remembers its results for as long as the problem is in use.

    Problems may be read anew for every sample (`data.problems.ProblemFile`), and must not pile up here.
    """

    def __init__(self, compute: Callable[[Problem], Value]) -> None:
        self._compute = compute
        self._known: dict[int, tuple[weakref.ref[Problem], Value]] = {}

    def __call__(self, problem: Problem) -> Value:
        """Return the value for this very object."""
        key, known = id(problem), self._known
        if key not in known:
            forget = weakref.ref(problem, lambda _: known.pop(key, None))
            known[key] = forget, self._compute(problem)
        return known[key][1]
