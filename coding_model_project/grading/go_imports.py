"""Imports of a Go program in a harness: exactly those that it uses.

Go rejects unused imports. HumanEval-X's imports do not match its own solutions, and its publisher adds
the ones that a program needs; this module does the same.
"""

from __future__ import annotations

import re

_PACKAGE = re.compile(r"\A(?:\s|//[^\n]*\n)*package\s+\w+;?")
_IMPORT = re.compile(r'^import\s*(?:\(([^)]*)\)|((?:[\w.]+\s+)?"[^"\n]*"));?', re.M)
_SPEC = re.compile(r'(?:([\w.]+)[ \t]+)?"([^"\n]+)"')
_USED = re.compile(r"\b(\w+)\.[A-Z]")
_COMPLETED = (
    "bytes", "crypto/md5", "fmt", "math", "math/rand", "regexp", "sort", "strconv", "strings", "time",
)  # fmt: skip
"""Imports that the publisher adds (`IMPORT_HELPER` of codegeex/benchmark/utils.py)."""


def with_used_imports(code: str) -> str:
    """Return the program without its package clause, with exactly the imports that it uses."""
    code = _PACKAGE.sub("", code)
    body = _IMPORT.sub("", code)
    used = set(_USED.findall(body))
    imported = {
        alias or _name(path): f'import {alias} "{path}"\n'
        for one in _IMPORT.finditer(code)
        for alias, path in _SPEC.findall(one[1] or one[2])
    }
    completed = {_name(path): f'import "{path}"\n' for path in _COMPLETED}
    kept = [
        line for name, line in (completed | imported).items() if name in used or name in ("_", ".")
    ]
    return "".join(kept) + body


def _name(path: str) -> str:
    """Return the name by which a program uses a package of the standard library."""
    return path.rpartition("/")[2]
