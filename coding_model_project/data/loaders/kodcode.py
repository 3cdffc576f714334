"""KodCode: synthetic problems, each with a solution and a small pytest module that tests it.

Each plain test function of a module becomes a separate test (`Asserts`) with the module's imports and
helpers, called in another process than the program. That process has no pytest, so a few lines here
replace `pytest.raises` of built-in exceptions. Modules that use more of pytest (parameters, fixtures,
classes), libraries or files are set aside with the reason.
"""

from __future__ import annotations

import ast
import builtins
import sys
from typing import Any

from coding_model_project.data.loaders.base import Part, Published, Row, Unusable, text
from coding_model_project.data.loaders.cases import with_starter
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import Asserts, Limits, Problem, Test

_DIFFICULTIES = {"easy": 1, "medium": 2, "hard": 3}
_NOT_HERE = {"unittest", "subprocess", "tempfile", "shutil", "pathlib", "os", "socket", "threading"}
"""Modules of the standard library that indicate a need for files, processes or a framework."""

_RAISES = """\
class _Raises:
    def __init__(self, kinds, match=None):
        self.kinds, self.match, self.value = kinds, match, None
    def __enter__(self):
        return self
    def __exit__(self, kind, value, _):
        assert kind is not None, "nothing was raised"
        self.value = value
        if not issubclass(kind, self.kinds):
            return False
        import re
        assert self.match is None or re.search(self.match, str(value)), str(value)
        return True
class pytest:
    raises = _Raises
"""


def problem(row: Row, part: Part, index: int) -> Problem:
    """Convert a row of any style; the first release calls `test` `test_code`."""
    info = row.get("test_info") or []
    info = info if isinstance(info, list) else [info]
    names = [one["function_name"] for one in info if one.get("function_name")]
    declared = "\n".join(
        one["function_declaration"] for one in info if one.get("function_declaration")
    )
    statement = text(row, "question")
    entry_point = names[0] if len(names) == 1 else None
    split = part.split or "train"
    source = row.get("test") or row.get("test_code")
    if not isinstance(source, str):
        raise Unusable("no hidden tests")
    return Problem(
        id=f"kodcode/{row.get('question_id') or f'{split}-{index}'}",
        split=split,
        statement=with_starter(statement, declared, entry_point),
        tests=tuple(
            Test(input=Asserts(source=one, entry_point=entry_point)) for one in split_module(source)
        ),
        limits=Limits(cpu_s=10.0, wall_s=30.0),
        entry_point=entry_point,
        difficulty=_DIFFICULTIES.get(str(row.get("gpt_difficulty")).lower()),
        tags=tuple(str(row[key]) for key in ("subset", "style") if row.get(key)),
        gold=(text(row, "solution"),),
    )


def split_module(source: str) -> list[str]:
    """Split a pytest module into pieces of test code, one per test function.

    Raises:
        Unusable: it needs pytest, a library or a file, or has no test function.
    """
    try:
        body = syntax_tree(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unusable(f"the tests do not parse: {type(error).__name__}") from error
    lead: list[ast.stmt] = []
    tests: list[ast.FunctionDef] = []
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            lead += _imports(node)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            tests.append(_plain(node))
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            raise Unusable("tests in classes")
        elif not _is_main(node):
            lead.append(node)
    if not tests:
        raise Unusable("the module has no test function")
    used = _check_pytest([node for node in body if not _is_main(node)])
    shim = _RAISES if used else ""
    before = shim + "".join(f"{ast.unparse(node)}\n" for node in lead)
    return [f"{before}{ast.unparse(test)}\n{test.name}()\n" for test in tests]


def _imports(node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
    """Return an import without the program's names, which the tests see anyway, and without pytest."""
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    if isinstance(node, ast.ImportFrom) and (module == "solution" or node.level):
        if any(name.name == "*" for name in node.names):
            return []
        renamed = [name for name in node.names if name.asname not in (None, name.name)]
        return [ast.parse(f"{name.asname} = {name.name}").body[0] for name in renamed]
    roots = [module] if module else [name.name for name in node.names]
    for root in (name.partition(".")[0] for name in roots):
        if root == "solution":
            raise Unusable("the tests import the solution as a module")
        if root == "pytest":
            if module or any(name.asname for name in node.names):
                raise Unusable("the tests import parts of pytest")
            return []
        if root not in sys.stdlib_module_names:
            raise Unusable(f"the tests import {root}, which is not in the standard library")
        if root in _NOT_HERE:
            raise Unusable(f"the tests import {root}")
    return [node]


def _plain(node: ast.FunctionDef) -> ast.FunctionDef:
    if node.decorator_list:
        raise Unusable("tests with decorators, such as pytest's parameters")
    if node.args.args or node.args.vararg or node.args.kwonlyargs:
        raise Unusable("tests with arguments, which are pytest's fixtures")
    return node


def _check_pytest(body: list[ast.stmt]) -> bool:
    """Return whether the module uses pytest, that is, `pytest.raises` of built-in exceptions.

    Raises:
        Unusable: it uses other parts of pytest.
    """
    used = False
    raises = set()
    for node in (inner for one in body for inner in ast.walk(one)):
        if isinstance(node, ast.Call) and _is_raises(node.func):
            used = True
            raises.add(node.func)
            if len(node.args) != 1 or any(key.arg != "match" for key in node.keywords):
                raise Unusable("pytest.raises with a function to call")
            kinds = node.args[0].elts if isinstance(node.args[0], ast.Tuple) else [node.args[0]]
            if not all(isinstance(one, ast.Name) and _is_exception(one.id) for one in kinds):
                raise Unusable("pytest.raises of an exception that the program defines")
    for node in (inner for one in body for inner in ast.walk(one)):
        if isinstance(node, ast.Attribute) and node not in raises and _is_pytest(node.value):
            raise Unusable(f"the tests use pytest.{node.attr}")
    return used


def _is_pytest(node: Any) -> bool:
    return isinstance(node, ast.Name) and node.id == "pytest"


def _is_raises(node: Any) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "raises" and _is_pytest(node.value)


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def _is_main(node: ast.stmt) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _part(split: str) -> Part:
    return Part(
        split=split,
        files=(
            f"KodCode-V1/data/{split}-*.parquet",
            f"kodcode_{split}.parquet",
            f"kodcode_{split}.jsonl",
        ),
    )


LOADER = TableLoader(
    published=Published(
        name="kodcode",
        licence="CC-BY-NC-4.0",
        fields=("question_id", "question", "solution"),
        optional=("test", "test_code", "test_info", "subset", "style", "gpt_difficulty"),
        parts=(_part("train"), _part("use_with_caution")),
        hub="KodCode/KodCode-V1",
        whole=False,
        tests="asserts",
    ),
    to_problem=problem,
)
