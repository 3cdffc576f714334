"""MBPP, in full and sanitized: short functions with three assertions each.

Tasks are split by number, like the authors' splits. `mbpp_reg` is the test split of the sanitized set,
257 tasks, for quick regression checks. The assertions are part of the statement, since nothing else gives
the function's name and arguments; a model trained on these tasks therefore sees its tests.
"""

from __future__ import annotations

import ast

from coding_model_project.data.governance import isolation_of
from coding_model_project.data.loaders.base import Part, Row, Unusable, text, texts
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import Asserts, Problem, Test

_SHOWN = " Your code should pass these tests:\n\n"


def without_tests(statement: str) -> str:
    """Remove the tests from the statement of one of these problems; return any other unchanged."""
    return statement.partition(_SHOWN)[0]


def split_of(task: int) -> str:
    """Return the authors' split of a task."""
    if task <= 10:
        return "prompt"
    if task <= 510:
        return "test"
    return "validation" if task <= 600 else "train"


def full(name: str, row: Row, _part: Part, _index: int) -> Problem:
    """Convert a row of the full set."""
    setup = text(row, "test_setup_code")
    challenge = texts(row, "challenge_test_list")
    return _problem(name, row, text(row, "text"), setup, challenge)


def sanitized(name: str, row: Row, _part: Part, _index: int) -> Problem:
    """Convert a row of the sanitized set."""
    return _problem(name, row, text(row, "prompt"), "\n".join(texts(row, "test_imports")))


def _problem(
    source: str, row: Row, task: str, setup: str, challenge: tuple[str, ...] = ()
) -> Problem:
    gold, asserts = text(row, "code"), texts(row, "test_list")
    entry_point = _entry_point(gold, asserts)
    lead = f"{setup.strip()}\n" if setup.strip() else ""
    shown = "\n".join(asserts)
    split = split_of(int(row["task_id"]))
    return Problem(
        id=f"{source}/{row['task_id']}",
        split=split,
        statement=f"{task.strip()}{_SHOWN}{shown}\n",
        tests=tuple(
            Test(input=Asserts(source=f"{lead}{one}\n", entry_point=entry_point))
            for one in (*asserts, *challenge)
        ),
        isolation=isolation_of(source, split),  # the authors run all asserts in one process
        entry_point=entry_point,
        gold=(gold,),
    )


def _entry_point(gold: str, asserts: tuple[str, ...]) -> str:
    """Return the outermost function of the gold program that the first test calls."""
    try:
        defined = {
            node.name
            for node in syntax_tree(gold).body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        calls = [node for node in ast.walk(syntax_tree(asserts[0])) if isinstance(node, ast.Call)]
    except (SyntaxError, IndexError) as error:
        raise Unusable(f"the solution or its first test does not parse: {error}") from error
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id in defined:
            return call.func.id
    raise Unusable("the first test calls nothing that the solution defines")
