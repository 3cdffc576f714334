"""MBPP, in full and sanitized: short functions with three assertions each.

Tasks are split by number, like the authors' splits. `mbpp_reg` is the test split of the sanitized set,
257 tasks, for quick regression checks. The assertions are part of the statement, since nothing else gives
the function's name and arguments; a model trained on these tasks therefore sees its tests.
"""

from __future__ import annotations

import ast

from coding_model_project.data.loaders.base import Part, Row, Unusable, text, texts
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import Asserts, Test

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


def full(row: Row, _part: Part) -> Row:
    """Return a row of the full set with its statement, tests and split."""
    setup, challenge = text(row, "test_setup_code"), texts(row, "challenge_test_list")
    return _prepared(row, text(row, "text"), setup, challenge)


def sanitized(row: Row, _part: Part) -> Row:
    """Return a row of the sanitized set likewise."""
    return _prepared(row, text(row, "prompt"), "\n".join(texts(row, "test_imports")))


def _prepared(row: Row, task: str, setup: str, challenge: tuple[str, ...] = ()) -> Row:
    asserts = texts(row, "test_list")
    entry_point = _entry_point(text(row, "code"), asserts)
    lead = f"{setup.strip()}\n" if setup.strip() else ""
    shown = "\n".join(asserts)
    sources = (f"{lead}{one}\n" for one in (*asserts, *challenge))
    return {
        **row,
        "_statement": f"{task.strip()}{_SHOWN}{shown}\n",
        "_tests": tuple(Test(Asserts(source, entry_point)) for source in sources),
        "_entry_point": entry_point,
        "_split": split_of(int(row["task_id"])),
    }


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
