"""A second opinion on mutants by a plain run of the tests. It is not a judge.

Everything happens in one script within the sandbox: calls print their values, and assertions run beside
the program. It shares neither the calling of programs nor the comparison of answers with the graders. A
program could deceive it, but mechanical mutants do not.
"""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import Any

from coding_model_project.grading.brief import ordered_repr
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.grading.prelude import with_prelude
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Limits,
    Problem,
    Program,
    Status,
    Stdin,
)

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
