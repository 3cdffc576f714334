"""Execution of the generator's own programs in this process: they are trusted, tiny and terminate."""

from __future__ import annotations

import builtins
from functools import lru_cache
from types import CodeType
from typing import Any

from coding_model_project.grading.compare import same_output, same_value
from coding_model_project.types import Call, Plain, Problem, Stdin, Test


class Failed:
    """A marker for an exception instead of a value."""


def outcomes(source: str, inputs: tuple[Plain, ...]) -> list[Any]:
    """Return `solve`'s value for each input, or `Failed` if it raises."""
    namespace: dict[str, Any] = {}
    exec(_byte_code(source), namespace)
    values = []
    for given in inputs:
        try:
            values.append(namespace["solve"](_copy(given)))
        except Exception:  # noqa: BLE001 - a mistake may raise anything
            values.append(Failed)
    return values


def _copy(given: Any) -> Any:
    return list(given) if isinstance(given, list) else given


@lru_cache(maxsize=8)
def _byte_code(source: str) -> CodeType:
    return compile(source, "solution", "exec")


def proved(problem: Problem) -> bool:
    """Return whether the gold solution passes all tests and each known-bad one fails a hidden test."""
    if len(problem.bad) < 2 or not all(_passes(problem.gold[0], test) for test in problem.tests):
        return False
    return all(
        not all(_passes(source, test) for test in problem.hidden_tests) for source in problem.bad
    )


def _passes(source: str, test: Test) -> bool:
    """Return whether a program passes a test, as a script or a function."""
    printed: list[str] = []
    namespace: dict[str, Any] = {"__builtins__": builtins}
    given = test.input
    try:
        if isinstance(given, Stdin):
            namespace["input"] = lambda: given.text.removesuffix("\n")
            namespace["print"] = lambda *values: printed.append(" ".join(map(str, values)) + "\n")
            exec(_byte_code(source), namespace)
            return same_output(str(test.expected), "".join(printed), "tokens")
        assert isinstance(given, Call)
        exec(_byte_code(source), namespace)
        (argument,) = given.args
        value = namespace["solve"](_copy(argument))
        return same_value(test.expected, value)
    except Exception:  # noqa: BLE001 - a known-bad program may raise anything
        return False
