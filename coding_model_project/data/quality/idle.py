"""Programs that do nothing: tests that accept one do not reach the program."""

from __future__ import annotations

import builtins
import symtable
import warnings
from collections.abc import Iterator

from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import Asserts, Call, GradedBy, Problem, Stdin

_MAINS = {
    "bash": "",
    "javascript": "",
    "cpp": "int main() { return 0; }\n",
    "java": "public class Main { public static void main(String[] args) {} }\n",
    "go": "package main\n\nfunc main() {}\n",
    "rust": "fn main() {}\n",
}
"""Programs that print nothing, by language."""

_FUNCTION = "def {}(*_, **__):\n    return None\n"
_CLASS = """class {}:
    def __init__(self, *_, **__):
        pass

    def __getattr__(self, _):
        return lambda *_, **__: None
"""


def idle_program(problem: Problem) -> str | None:
    """Return a program that prints nothing and whose entry points return None.

    Return None if there is no such program: another grader judges, or tests call a compiled function.
    """
    if problem.graded_by not in (GradedBy.tests, GradedBy.harness):
        return None
    if problem.language != "python":
        reads = problem.harness is None and all(isinstance(t.input, Stdin) for t in problem.tests)
        return _MAINS.get(problem.language) if reads else None
    names = dict.fromkeys(name for name in _entry_points(problem) if name.isidentifier())
    return "\n".join((_CLASS if name[0].isupper() else _FUNCTION).format(name) for name in names)


def _entry_points(problem: Problem) -> Iterator[str]:
    if problem.entry_point:
        yield problem.entry_point.split(".")[0]
    if problem.harness is not None:
        yield from _needed(problem.harness.before + "\n" + problem.harness.after)
    for test in problem.tests:
        match test.input:
            case Call(function=name):
                yield name.split(".")[0]
            case Asserts(source=source, entry_point=name):
                yield from _needed(source) if name is None else (name.split(".")[0],)
            case Stdin():
                pass


def _needed(source: str) -> list[str]:
    """Return the names that test code uses and does not define."""
    try:
        syntax_tree(source)  # refuses what takes too long to parse
        with warnings.catch_warnings(action="ignore"):
            tables = [symtable.symtable(source, "tests", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for table in tables:
        tables += table.get_children()
    symbols = [symbol for table in tables for symbol in table.get_symbols() if symbol.is_global()]
    defined = {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}
    used = dict.fromkeys(one.get_name() for one in symbols if one.is_referenced())
    return [name for name in used if name not in defined and not hasattr(builtins, name)]
