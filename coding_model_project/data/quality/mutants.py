"""Mutants: programs with one mechanical change of a right one.

Some changes have no effect. A plain run of the tests decides which mutants are wrong (`second_opinion`).
"""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

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
    line: int
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

Change = Callable[[ast.AST], None]


def mutants(source: str) -> Iterator[Mutant]:
    """Yield a program's mutants, one per operator in turn; none if it does not parse."""
    try:
        tree = syntax_tree(source)
        original = ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    sites: dict[Operator, list[tuple[int, int, Change]]] = {operator: [] for operator in Operator}
    for index, node in enumerate(ast.walk(tree)):
        for operator, change in _changes(node):
            sites[operator].append((index, getattr(node, "lineno", 0), change))
    seen = {original}
    for turn in zip_longest(*sites.values()):
        for operator, site in zip(sites, turn, strict=True):
            if site is None:
                continue
            index, line, change = site
            code = _changed(tree, index, change)
            if code is not None and code not in seen:
                seen.add(code)
                yield Mutant(operator=operator, line=line, code=code)


def _changed(tree: ast.Module, index: int, change: Change) -> str | None:
    """Apply a change to the `index`-th node of a copy, which `ast.walk` traverses in the same order."""
    changed = copy.deepcopy(tree)
    node = next(node for number, node in enumerate(ast.walk(changed)) if number == index)
    change(node)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = ast.unparse(ast.fix_missing_locations(changed))
            compile(code, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return code


def _changes(node: ast.AST) -> Iterator[tuple[Operator, Change]]:
    match node:
        case ast.Compare():
            yield from _comparisons(node)
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            if not _formats_text(node):
                yield Operator.arithmetic, _set("op", _ARITHMETIC[type(op)]())
        case ast.Constant():
            yield from _constants(node)
        case ast.BoolOp(op=op):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield Operator.boolean, _set("op", other)
        case ast.If() | ast.While() | ast.IfExp():
            yield Operator.boolean, _negate
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield Operator.returned, _set("value", ast.Constant(None))
        case ast.Call(func=ast.Name(id="print"), args=[_, *_]):
            yield Operator.returned, _set("args", [])
        case ast.Call(func=ast.Name(id="range"), args=[_, *_]):
            yield Operator.boundary, _shorten
        case ast.Call(func=ast.Name(id=name), args=[_, *_]) if name != "super":
            yield Operator.call, _leave_out
        case ast.Call(func=ast.Attribute()):
            yield Operator.call, _leave_out
        case _:
            pass


def _comparisons(node: ast.Compare) -> Iterator[tuple[Operator, Change]]:
    for position, op in enumerate(node.ops):
        for operator, table in (
            (Operator.comparison, _COMPARISON),
            (Operator.boundary, _BOUNDARY),
        ):
            if type(op) in table and not _is_main_guard(node):
                yield operator, _set_item("ops", position, table[type(op)]())


def _constants(node: ast.Constant) -> Iterator[tuple[Operator, Change]]:
    value = node.value
    if isinstance(value, bool):
        yield Operator.constant, _set("value", not value)
    elif isinstance(value, (int, float)):
        yield Operator.constant, _set("value", value + 1)
    elif isinstance(value, str) and len(value) < 40 and value != "__main__":
        yield Operator.constant, _set("value", value + "x")


def _set(field: str, value: object) -> Change:
    return lambda node: setattr(node, field, value)


def _set_item(field: str, position: int, value: object) -> Change:
    return lambda node: getattr(node, field).__setitem__(position, value)


def _negate(node: ast.AST) -> None:
    assert isinstance(node, (ast.If, ast.While, ast.IfExp))
    if isinstance(node.test, ast.Compare) and _is_main_guard(node.test):
        return
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _shorten(node: ast.AST) -> None:
    assert isinstance(node, ast.Call)
    position = 0 if len(node.args) == 1 else 1
    node.args[position] = ast.BinOp(node.args[position], ast.Sub(), ast.Constant(1))


def _leave_out(node: ast.AST) -> None:
    assert isinstance(node, ast.Call)
    first = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    node.func, node.args, node.keywords = ast.Lambda(nothing, first), [], []


def _is_main_guard(node: ast.Compare) -> bool:
    return isinstance(node.left, ast.Name) and node.left.id == "__name__"


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
