"""The names that a program must define, read from its reference's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from coding_model_project.types import Asserts, Call, Problem, Test


def required(problem: Problem) -> list[str]:
    """Return the first gold program's functions and classes that tests use, with their arguments.

    Returns:
        Such as "solve(xs)" or "class Pair(a, b)", in the reference's order; none for a script.
    """
    tree = ast.parse(problem.gold[0])
    used = {name for test in problem.hidden_tests for name in _names(test)}
    return [
        _signature(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name in used
    ]


def _names(test: Test) -> set[str]:
    match test.input:
        case Call(function=name):
            return {name.partition(".")[0], "Solution"}
        case Asserts(source=source, entry_point=name):
            found = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
            return found | ({name.partition(".")[0]} if name else set())
        case _:
            return set()


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        inner = [one for one in node.body if isinstance(one, ast.FunctionDef)]
        first = next((one for one in inner if one.name == "__init__"), None)
        own = [one.name for one in inner if not one.name.startswith("_")]
        methods = f" with {', '.join(own)}" if own else ""
        return f"class {node.name}({_arguments(first, skip=1) if first else ''}){methods}"
    return f"{node.name}({_arguments(node)})"


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, skip: int = 0) -> str:
    names: Sequence[str] = ast.unparse(node.args).split(", ")
    return ", ".join(names[skip:])
