"""Mutants: programs with one mechanical change of a right one.

Some changes have no effect. A plain run of the tests decides which mutants are wrong (`second_opinion`).
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from coding_model_project.grading.literals import syntax_tree


class Operator(StrEnum):
    """The kinds of change."""

    comparison = "comparison"
    """== for !=, < for >, in for not in."""
    boundary = "boundary"
    """< for <=, and a range that is one shorter."""
    arithmetic = "arithmetic"
    """+ for -, * for +, // for *, % for //."""
    constant = "constant"
    """A number one larger, another text, True for False."""
    boolean = "boolean"
    """and for or, a condition negated."""
    returned = "return"
    """None returned, or nothing printed."""
    call = "call"
    """A call replaced by its first argument, or by the object whose method it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A changed program."""

    operator: Operator
    code: str


_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE,
    ast.GtE: ast.LtE, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip

Change = dict[str, Any]
"""Other values of a node's fields."""


def mutants(source: str) -> Iterator[Mutant]:
    """Yield a program's mutants, one per operator in turn; none if it does not parse."""
    try:
        tree = syntax_tree(source)
        original = ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    sites: dict[Operator, list[tuple[ast.AST, Change]]] = {operator: [] for operator in Operator}
    for node in ast.walk(tree):
        for operator, change in _changes(node):
            sites[operator].append((node, change))
    seen = {original}
    for turn in zip_longest(*sites.values()):
        for operator, site in zip(sites, turn, strict=True):
            if site is None:
                continue
            node, change = site
            code = _changed(tree, node, change)
            if code is not None and code not in seen:
                seen.add(code)
                yield Mutant(operator=operator, code=code)


def _changed(tree: ast.Module, node: ast.AST, change: Change) -> str | None:
    """Return the program with a change, and undo it; None if it does not compile."""
    before = {field: getattr(node, field) for field in change}
    vars(node).update(change)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = ast.unparse(tree)
            compile(code, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None
    finally:
        vars(node).update(before)
    return code


def _changes(node: ast.AST) -> Iterator[tuple[Operator, Change]]:
    match node:
        case ast.Compare(ops=ops) if not _is_main_guard(node):
            for position, op in enumerate(ops):
                for operator, table in (
                    (Operator.comparison, _COMPARISON),
                    (Operator.boundary, _BOUNDARY),
                ):
                    if (other := table.get(type(op))) is not None:
                        yield operator, {"ops": [*ops[:position], other(), *ops[position + 1 :]]}
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            if not _formats_text(node):
                yield Operator.arithmetic, {"op": _ARITHMETIC[type(op)]()}
        case ast.Constant(value=bool(value)):
            yield Operator.constant, {"value": not value}
        case ast.Constant(value=int(value) | float(value)):
            yield Operator.constant, {"value": value + 1}
        case ast.Constant(value=str(value)) if len(value) < 40 and value != "__main__":
            yield Operator.constant, {"value": value + "x"}
        case ast.BoolOp(op=op):
            yield Operator.boolean, {"op": ast.Or() if isinstance(op, ast.And) else ast.And()}
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not _is_main_guard(
            test
        ):
            yield Operator.boolean, {"test": ast.UnaryOp(ast.Not(), test)}
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield Operator.returned, {"value": ast.Constant(None)}
        case ast.Call(func=ast.Name(id="print"), args=[_, *_]):
            yield Operator.returned, {"args": []}
        case ast.Call(func=ast.Name(id="range"), args=[stop]):
            yield Operator.boundary, {"args": [_less_one(stop)]}
        case ast.Call(func=ast.Name(id="range"), args=[start, stop, *step]):
            yield Operator.boundary, {"args": [start, _less_one(stop), *step]}
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name != "super":
            yield Operator.call, _instead_of_call(first)
        case ast.Call(func=ast.Attribute(value=first)):
            yield Operator.call, _instead_of_call(first)
        case _:
            pass


def _less_one(number: ast.expr) -> ast.expr:
    return ast.BinOp(number, ast.Sub(), ast.Constant(1))


def _instead_of_call(value: ast.expr) -> Change:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return {"func": ast.Lambda(nothing, value), "args": [], "keywords": []}


def _is_main_guard(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and node.left.id == "__name__"
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _formats_text(node: ast.AST) -> bool:
    """Return whether a node is like "%d" % n, in which another operator fails at once."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and isinstance(node.left, (ast.Constant, ast.JoinedStr))
        and not isinstance(getattr(node.left, "value", None), (int, float))
    )
