"""Several asserts of one program, tried in one pair of processes before each gets a pair of its own.

Two forks for all of them instead of two for each: what most right programs need. They share the program's
state then, as where their data sets run them one after another. What fails, or takes long, is found again
by the test on its own: only a pass, or a failure of the very first, is believed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from coding_model_project.types import Asserts, Execution, Input, Limits, Status

_CPU_S, _WALL_S = 0.5, 2.0

_LINE = re.compile(r"line (\d+)")


def hurried(limits: Limits) -> Limits:
    """Limits of a try: one that is in vain costs at most so much more."""
    return replace(limits, cpu_s=min(limits.cpu_s, _CPU_S), wall_s=min(limits.wall_s, _WALL_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """All asserts of a program in one source."""

    tests: Asserts
    starts: tuple[int, ...]
    """The line, from 1, on which each of them begins."""


def joined(inputs: Sequence[Input]) -> Joined | None:
    """The inputs as one; None unless there are several, all of them plain asserts of one function."""
    if len(inputs) < 2 or not all(_is_plain(given) for given in inputs):
        return None
    tests = [given for given in inputs if isinstance(given, Asserts)]
    if len({test.entry_point for test in tests}) > 1:
        return None
    starts, lines = [], 0
    for test in tests:
        starts.append(lines + 1)
        lines += test.source.count("\n") + (not test.source.endswith("\n"))
    source = "".join(
        test.source if test.source.endswith("\n") else f"{test.source}\n" for test in tests
    )
    whole = Asserts(source=source, entry_point=tests[0].entry_point)
    return Joined(tests=whole, starts=tuple(starts))


def _is_plain(given: Input) -> bool:
    return isinstance(given, Asserts) and _only_asserts(given.source)


@lru_cache(maxsize=4096)
def _only_asserts(source: str) -> bool:
    """Nothing that one test could leave to another: no definitions, no assignments."""
    if "\r" in source or "\f" in source:  # lines that Python counts and `starts` does not
        return False
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return False
    return all(_is_plain_statement(statement) for statement in body)


def _is_plain_statement(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.module != "__future__"  # must come first in a source
    if isinstance(statement, ast.Assert):
        return not any(isinstance(node, ast.NamedExpr) for node in ast.walk(statement))
    return isinstance(statement, ast.Import)


def believed(together: Joined, execution: Execution) -> list[Execution]:
    """Executions of the first inputs, as many as the try has shown: they need not run again."""
    n = len(together.starts)
    share = Execution(
        status=Status.finished,
        value=True,
        exit_code=execution.exit_code,
        cpu_s=execution.cpu_s / n,
        wall_s=execution.wall_s / n,
    )
    if execution.status is not Status.finished:
        return []
    if execution.value is True:
        return [share] * n
    found = _LINE.match(str(execution.value))
    if found is None:
        return []
    passed = sum(start <= int(found[1]) for start in together.starts) - 1
    return [share] * passed if passed > 0 else [execution]
