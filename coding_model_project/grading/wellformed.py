"""Validation of problems made in Python, as strict as for files, so that no program gets the blame."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeGuard

from coding_model_project.errors import DataError
from coding_model_project.types import (
    Asserts,
    Call,
    Checker,
    Limits,
    Problem,
    Protocol,
    Stdin,
    Test,
)

_ATOMS = (type(None), bool, int, float, complex, str, bytes)
_COLLECTIONS = (list, tuple, set, frozenset)

LARGEST = 2**63
"""No limit or whole number of a problem's file is larger: JSON lines hold no larger ones."""

PROGRAM_MODULES = frozenset({"solution", "your_module", "main"})
"""Names by which test modules import the program; its names are there without an import."""


def check_problem(problem: Problem) -> None:
    """Validate every field of a problem.

    Raises:
        DataError: a field is invalid; names the problem, the field, the value and what is expected.
    """
    if fault := _fault_of_fields(problem):
        raise DataError(f"problem {problem.id}: {fault}")
    for number, test in enumerate(problem.tests):
        if fault := _fault(test):
            raise DataError(f"problem {problem.id}, test {number}: {fault}")


def _fault_of_fields(problem: Problem) -> str | None:
    for name in ("id", "language", "comparison"):
        value = getattr(problem, name)
        if not isinstance(value, str) or not value:
            return f"{name}={value!r}: expected text"
    if not isinstance(problem.limits, Limits):
        return f"limits={problem.limits!r}: expected cmp.Limits(cpu_s=5)"
    for name in ("cpu_s", "wall_s", "memory_mb", "output_kb"):
        whole, value = name in ("memory_mb", "output_kb"), getattr(problem.limits, name)
        if not is_positive(value) or (whole and not isinstance(value, int)):
            return f"limits.{name}={value!r}: expected a {'whole ' if whole else ''}number above 0"
    for name in ("atol", "rtol"):
        if not is_tolerance(value := getattr(problem, name)):
            return f"{name}={value!r}: expected a number of at least 0"
    if not isinstance(problem.checker, Checker | None):
        return f"checker: expected cmp.Checker(source=…), got {_kind(problem.checker)}"
    if not isinstance(problem.tests, Sequence):
        return "tests: expected a tuple of cmp.Test"
    return None


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is an int or a float, and not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_positive(value: object) -> TypeGuard[float]:
    """Return whether a value is a number above 0 and below `LARGEST`."""
    return is_number(value) and 0 < value < LARGEST


def is_tolerance(value: object) -> bool:
    """Return whether a value is valid for a problem's `atol` or `rtol`: a finite number of at least 0."""
    return is_number(value) and 0 <= value < math.inf


def _fault(test: object) -> str | None:
    """Return a description of a test's first fault; None if it is valid."""
    if not isinstance(test, Test):
        return f"expected a cmp.Test, got {_kind(test)}"
    match test.input:
        case Stdin(text):
            if not isinstance(text, str):
                return f"Stdin({text!r}): expected text, got {_kind(text)}"
            if not isinstance(test.expected, str):
                return f"expected={test.expected!r}: a Stdin needs text, such as expected='3'"
        case Call(function, args):
            if not isinstance(function, str) or not function:
                return f"Call({function!r}): expected the name of a function"
            if not isinstance(args, list | tuple):
                return f"Call({function!r}, {args!r}): expected a tuple of arguments, ({args!r},)"
            if not _is_plain(args):
                return (
                    f"Call({function!r}): an argument is not plain data (numbers, text, lists, …)"
                )
            if not _is_plain(test.expected):
                return f"expected={test.expected!r}: not plain data (numbers, text, lists, …)"
        case Asserts(source):
            if not isinstance(source, str) or not source.strip():
                return f"Asserts({source!r}): expected the source of assert statements"
            if test.expected is not None:
                return f"expected={test.expected!r}: the source of Asserts compares itself"
        case _:
            return f"input: expected cmp.Stdin, cmp.Call or cmp.Asserts, got {_kind(test.input)}"
    return None


@lru_cache(maxsize=1024)
def asserts_fault(source: str, entry_point: str | None) -> str | None:
    """Return why test code can judge no program; None if it can, or does not parse.

    Code that calls nothing accepts every program; code that imports the program as a module, none.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the sandbox says what does not compile
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module in PROGRAM_MODULES:
            return f"the program's names are there without `{ast.unparse(node)}`: remove the line"
    names = [one.name for one in body if isinstance(one, ast.FunctionDef)]
    if any(map(acts, body)) or (entry_point and "check" in names):
        return None
    if any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare) for node in body):
        return "the test code compares without `assert`, so every program passes"
    call = f": add {names[0]}()" if names else ""
    return f"the test code calls nothing, so every program passes{call}"


def never_rejects(checker: Checker) -> bool:
    """Return whether a Python checker prints or returns its ruling, and always exits with 0: accepted."""
    if checker.protocol is not Protocol.testlib or checker.language != "python":
        return False
    says = re.search(r"\bprint\(|\bdef \w+\([^:]", checker.source)
    return bool(says) and not re.search(r"exit|quit|raise|assert|abort|kill", checker.source)


def acts(node: ast.stmt) -> bool:
    """Return whether a statement of a module may fail: no definition, import, constant or comparison."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare):
        return False
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(isinstance(inner, ast.Assert | ast.Call | ast.Raise) for inner in ast.walk(node))


def _is_plain(value: Any) -> bool:
    if type(value) in _ATOMS:
        return True
    if type(value) is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return type(value) in _COLLECTIONS and all(map(_is_plain, value))


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else type(value).__name__
