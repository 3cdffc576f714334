"""When two programs of one problem are the same one, so that a second copy teaches nothing."""

from __future__ import annotations

import ast
import warnings


def normal_form(code: str, language: str = "python") -> str:
    """Equal for programs that differ in layout alone; in Python also in comments and variables' names.

    Names stay that others may call or that come from elsewhere: of functions, classes, modules,
    keywords and attributes. In other languages spaces within a line stay too: they may be of a string.
    """
    if language == "python":
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape in untrusted code is not ours
                return ast.unparse(_anonymous(ast.parse(code)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return "\n".join(line.rstrip() for line in code.splitlines() if line.strip())


def _anonymous(tree: ast.Module) -> ast.Module:
    """Variables and parameters numbered as they come, and no docstrings."""
    nodes = list(ast.walk(tree))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    own -= {text for node in nodes for text in _texts(node)}
    numbers: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in own:
            node.id = numbers.setdefault(node.id, f"<{len(numbers)}>")
        elif isinstance(node, ast.arg) and node.arg in own:
            node.arg = numbers.setdefault(node.arg, f"<{len(numbers)}>")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            _drop_docstring(node)
    return tree


def _texts(node: ast.AST) -> list[str]:
    """Names that are no nodes of their own: of definitions, imports, keywords, exceptions, globals."""
    if isinstance(node, ast.Name | ast.arg | ast.Attribute | ast.Constant):
        return []
    values = [value for _, value in ast.iter_fields(node)]
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [one for one in flat if isinstance(one, str)]


def _drop_docstring(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module,
) -> None:
    if node.body and isinstance(first := node.body[0], ast.Expr):
        value = first.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            node.body[:1] = [] if node.body[1:] else [ast.Pass()]
