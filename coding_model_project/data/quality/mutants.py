"""Programs that must fail: mutants, each with one mechanical change of a right program, and idle ones.

Some changes have no effect. A plain run of the tests decides which mutants are wrong (`passes_plainly`).
"""

from __future__ import annotations

import ast
import builtins
import math
import symtable
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from coding_model_project.grading.brief import ordered_repr
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.grading.prelude import with_prelude
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    GradedBy,
    Limits,
    Problem,
    Program,
    Status,
    Stdin,
)


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
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
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


def _formats_text(node: ast.AST) -> bool:
    """Return whether a node is like "%d" % n, in which another operator fails at once."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and isinstance(node.left, (ast.Constant, ast.JoinedStr))
        and not isinstance(getattr(node.left, "value", None), (int, float))
    )


# ── a second opinion ───────────────────────────────────────────────────────────────────────────────
#
# Everything happens in one script within the sandbox: calls print their values, and assertions run beside
# the program. It is not a judge: it shares neither the calling of programs nor the comparison of answers
# with the graders. A program could deceive it, but mechanical mutants do not.

_MARK = "plain-run-answer:"
_TESTS = """
inf, nan = float("inf"), float("nan")
for _name, _args in {calls}:
    _target = globals().get(_name) or getattr(Solution(), _name)
    print({mark!r} + repr(_target(*_args)))
for _source in {sources}:
    exec(compile(_source, "tests", "exec"), dict(globals()))
    print({mark!r} + "True")
"""
_REBUILT = """
def _rebuilt(value):
    if type(value) in (set, frozenset, list, tuple):
        return type(value)([_rebuilt(item) for item in value])
    if type(value) is dict:
        return {{_rebuilt(key): _rebuilt(item) for key, item in value.items()}}
    return value
def _wrapped(function):
    return lambda *args, **named: _rebuilt(function(*map(_rebuilt, args), **_rebuilt(named)))
for _name in {names}:
    if _name in globals():
        globals()[_name] = _wrapped(globals()[_name])
"""
"""Code that copies arguments and answers, like the transfer into a sandbox. Equal sets may then iterate
in another order, on which a program must not depend."""


async def passes_plainly(
    problem: Problem, code: str, sandbox: Sandbox, limits: Limits, *, rebuilt: bool = False
) -> bool:
    """Return whether all hidden tests pass in a plain run.

    Args:
        limits: the limits of one test; a script of several tests gets their sum.
        rebuilt: whether to copy arguments and answers (see `_REBUILT`).

    Raises:
        SandboxError: the sandbox failed.
    """
    tests = problem.hidden_tests
    code = with_prelude(problem.prelude, code)
    calls = [(t.input, t.expected) for t in tests if isinstance(t.input, Call)]
    asserts = [t.input for t in tests if isinstance(t.input, Asserts)]
    if rebuilt:
        names = {call.function for call, _ in calls} | {one.entry_point or "" for one in asserts}
        code += "\n" + _REBUILT.format(names=sorted(names))
    if not await _prints_all(problem, code, sandbox, limits):
        return False
    if not calls and not asserts:
        return True
    called = [(call.function, call.args) for call, _ in calls]
    sources = [one.source for one in asserts]
    try:
        script = _TESTS.format(calls=ordered_repr(called), sources=sources, mark=_MARK)
    except (ValueError, RecursionError):  # an integer of too many digits for source
        return False
    n = len(calls) + len(asserts)
    whole = replace(limits, cpu_s=limits.cpu_s * n, wall_s=limits.wall_s * n)
    (execution,) = await sandbox.run(Program(source=f"{code}\n{script}"), [Stdin("")], whole)
    lines = [line for line in execution.stdout.split("\n") if line.startswith(_MARK)]
    expected = [*(value for _, value in calls), *(True for _ in asserts)]
    answers = [_value(line.removeprefix(_MARK)) for line in lines]
    return execution.status is Status.finished and _equal(expected, answers)


async def _prints_all(problem: Problem, code: str, sandbox: Sandbox, limits: Limits) -> bool:
    """Return whether the program prints what its tests by standard input expect."""
    tests = [test for test in problem.hidden_tests if isinstance(test.input, Stdin)]

    def fails(index: int, execution: Execution) -> bool:
        wanted, got = str(tests[index].expected).split(), execution.stdout.split()
        is_right = len(wanted) == len(got) and all(map(_same_token, wanted, got))
        return execution.status is not Status.finished or not is_right

    if not tests:
        return True
    inputs = [test.input for test in tests]
    executions = await sandbox.run(Program(source=code), inputs, limits, stop_when=fails)
    return len(executions) == len(tests) and not fails(len(tests) - 1, executions[-1])


def _value(text: str) -> object:
    """Parse a `repr`; return an object that equals nothing if it is not plain data."""
    try:
        (statement,) = syntax_tree(text.strip()).body
        assert isinstance(statement, ast.Expr)
        return ast.literal_eval(_Floats().visit(statement.value))
    except (ValueError, SyntaxError, TypeError, AssertionError, RecursionError, MemoryError):
        return object()


class _Floats(ast.NodeTransformer):
    """A transformer of the names inf and nan into floats."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node


def _equal(expected: Any, got: Any) -> bool:
    """Return whether values are equal; tuples equal lists, as in JSON data sets."""
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        return len(expected) == len(got) and all(map(_equal, expected, got))
    if isinstance(expected, dict) and isinstance(got, dict):
        return expected.keys() == got.keys() and all(
            _equal(value, got[key]) for key, value in expected.items()
        )
    if isinstance(expected, float) and isinstance(got, (int, float)):
        return _near(expected, float(got))
    return type(expected) is type(got) and expected == got


def _same_token(wanted: str, got: str) -> bool:
    try:
        is_near = any(sign in wanted for sign in ".eE") and _near(float(wanted), float(got))
    except ValueError:
        is_near = False
    return wanted == got or is_near


def _near(expected: float, got: float) -> bool:
    both_nan = expected != expected and got != got
    return both_nan or math.isclose(expected, got, rel_tol=1e-6, abs_tol=1e-6)


# ── programs that do nothing ───────────────────────────────────────────────────────────────────────
#
# Tests that accept one do not reach the program.

_MAINS = {
    "bash": "",
    "javascript": "",
    "cpp": "int main() { return 0; }\n",
    "java": "public class Main { public static void main(String[] args) {} }\n",
    "go": "package main\n\nfunc main() {}\n",
    "rust": "fn main() {}\n",
}
"""Programs that print nothing, by language."""

_FUNCTION = "def {}(*_, **__):\n    return None\n"
_CLASS = """class {}:
    def __init__(self, *_, **__):
        pass

    def __getattr__(self, _):
        return lambda *_, **__: None
"""


def idle_program(problem: Problem) -> str | None:
    """Return a program that prints nothing and whose entry points return None.

    Return None if there is no such program: another grader judges, or tests call a compiled function.
    """
    if problem.graded_by not in (GradedBy.tests, GradedBy.harness):
        return None
    if problem.language != "python":
        reads = problem.harness is None and all(isinstance(t.input, Stdin) for t in problem.tests)
        return _MAINS.get(problem.language) if reads else None
    names = dict.fromkeys(name for name in _entry_points(problem) if name.isidentifier())
    return "\n".join((_CLASS if name[0].isupper() else _FUNCTION).format(name) for name in names)


def _entry_points(problem: Problem) -> Iterator[str]:
    if problem.entry_point:
        yield problem.entry_point.split(".")[0]
    if problem.harness is not None:
        yield from _needed(problem.harness.before + "\n" + problem.harness.after)
    for test in problem.tests:
        match test.input:
            case Call(function=name):
                yield name.split(".")[0]
            case Asserts(source=source, entry_point=name):
                yield from _needed(source) if name is None else (name.split(".")[0],)
            case Stdin():
                pass


def _needed(source: str) -> list[str]:
    """Return the names that test code uses and does not define."""
    try:
        syntax_tree(source)  # refuses what takes too long to parse
        with warnings.catch_warnings(action="ignore"):
            tables = [symtable.symtable(source, "tests", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for table in tables:
        tables += table.get_children()
    symbols = [symbol for table in tables for symbol in table.get_symbols() if symbol.is_global()]
    defined = {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}
    used = dict.fromkeys(one.get_name() for one in symbols if one.is_referenced())
    return [name for name in used if name not in defined and not hasattr(builtins, name)]
