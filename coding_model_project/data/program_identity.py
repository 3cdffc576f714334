"""Detection of equivalent programs of a problem, for deduplication."""

from __future__ import annotations

import ast

from coding_model_project.grading.literals import syntax_tree


def normal_form(code: str, language: str = "python") -> str:
    """Return a form that is equal for programs that differ only in layout.

    In Python it also ignores comments and names of variables, but keeps names that are used elsewhere: of
    functions, classes, modules, keywords and attributes. In other languages it keeps spaces within a
    line, which may belong to a string.
    """
    if language == "python":
        try:
            return ast.unparse(_anonymous(syntax_tree(code)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return "\n".join(line.rstrip() for line in code.splitlines() if line.strip())


def _anonymous(tree: ast.Module) -> ast.Module:
    """Number variables and parameters in order, and remove docstrings."""
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
        else:
            drop_docstring(node)
    return tree


def _texts(node: ast.AST) -> list[str]:
    """Return names without their own node: of definitions, imports, keywords, exceptions, globals."""
    if isinstance(node, ast.Name | ast.arg | ast.Attribute | ast.Constant):
        return []
    values = [value for _, value in ast.iter_fields(node)]
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [one for one in flat if isinstance(one, str)]


def drop_docstring(node: ast.AST) -> None:
    """Remove the docstring of a module, class or function; other nodes have none."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
        return
    if node.body and isinstance(first := node.body[0], ast.Expr):
        value = first.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            node.body[:1] = [] if node.body[1:] else [ast.Pass()]
