"""This package's source, carried to places without the package: a server, a room, an exported task."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files

PACKAGE = "coding_model_project"


@lru_cache
def carried(*entries: str) -> dict[str, str]:
    """Return modules and everything of this package that they import at import time.

    Args:
        entries: names of modules.

    Returns:
        The source of each file by its path, such as "coding_model_project/types.py".
    """
    found: dict[str, str] = {}
    pending = list(entries)
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if (file := _file(name)) is None:  # a name inside a module, not a module
            continue
        path, source = file
        found[path] = source
        pending += [name.rpartition(".")[0]] if "." in name else []
        pending += _imports(source)
    return dict(sorted(found.items()))


def _file(module: str) -> tuple[str, str] | None:
    """Return a module's path and source; None if it is not a module of this package."""
    *folders, name = module.split(".")[1:] or [""]
    for file in (f"{name}/__init__.py", f"{name}.py"):
        parts = [*folders, *filter(None, file.split("/"))]
        if (path := files(PACKAGE).joinpath(*parts)).is_file():
            return "/".join([PACKAGE, *parts]), path.read_text("utf-8")
    return None


def _imports(source: str) -> Iterable[str]:
    """Yield the names of this package that a module imports at import time."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
