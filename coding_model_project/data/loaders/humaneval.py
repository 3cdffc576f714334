"""HumanEval: 164 functions to complete, each with one `check` of asserts. Test only.

A program is the prompt with the body, or the whole function: the prompt's imports and helpers run before
it, as in the publisher's harness. The tests of three problems call helpers that the prompt defines. The
trusted tests include their own copy of these, so that a program cannot replace them.
"""

from __future__ import annotations

import ast

from coding_model_project.data.loaders.base import Part, Row, Unusable, text
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import Asserts, Test


def prepared(row: Row, _part: Part) -> Row:
    """Return a row with its test; the gold program is the prompt and the canonical body."""
    prompt, entry_point = text(row, "prompt"), text(row, "entry_point")
    imports, helpers = _context(prompt, entry_point)
    needed = (*imports, *helpers) if helpers else ()
    checks = "\n".join((*needed, text(row, "test"), f"check({entry_point})", ""))
    return {
        **row,
        "_tests": (Test(input=Asserts(source=checks, entry_point=entry_point)),),
        "_gold": prompt + text(row, "canonical_solution"),
        "_prelude": "\n".join(filter(None, ("; ".join(imports), *helpers))),
    }


def _context(prompt: str, entry_point: str) -> tuple[list[str], list[str]]:
    """Return the prompt's imports, and its definitions other than the function to write."""
    try:
        nodes = syntax_tree(prompt).body
    except SyntaxError as error:
        raise Unusable(f"the prompt does not parse: {error}") from error
    imports = [n for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom))]
    helpers = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name != entry_point]
    return [*map(ast.unparse, imports)], [*map(ast.unparse, helpers)]
