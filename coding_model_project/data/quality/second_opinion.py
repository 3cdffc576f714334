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
    Test,
)

_MARK = "plain-run-answer:"
_CALLS = """
inf, nan = float("inf"), float("nan")
for _name, _args in {calls}:
    _target = globals().get(_name) or getattr(Solution(), _name)
    print({mark!r} + repr(_target(*_args)))
"""
_ASSERTS = """
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
    stdin = [test for test in tests if isinstance(test.input, Stdin)]
    calls = [test for test in tests if isinstance(test.input, Call)]
    asserts = [test for test in tests if isinstance(test.input, Asserts)]
    if rebuilt:
        names = {t.input.function for t in calls if isinstance(t.input, Call)}
        names |= {t.input.entry_point for t in asserts if isinstance(t.input, Asserts)} - {None}
        code += "\n" + _REBUILT.format(names=sorted(map(str, names)))
    return (
        await _scripts_pass(stdin, code, sandbox, limits)
        and await _calls_pass(calls, code, sandbox, limits)
        and await _asserts_pass(asserts, code, sandbox, limits)
    )


async def _scripts_pass(tests: list[Test], code: str, sandbox: Sandbox, limits: Limits) -> bool:
    if not tests:
        return True

    def fails(index: int, execution: Execution) -> bool:
        return not _prints(execution, str(tests[index].expected))

    inputs = [test.input for test in tests]
    executions = await sandbox.run(Program(source=code), inputs, limits, stop_when=fails)
    return len(executions) == len(tests) and not fails(len(tests) - 1, executions[-1])


def _prints(execution: Execution, expected: str) -> bool:
    if execution.status is not Status.finished:
        return False
    wanted, got = expected.split(), execution.stdout.split()
    return len(wanted) == len(got) and all(
        w == g or (any(sign in w for sign in ".eE") and _near(_number(w), _number(g)))
        for w, g in zip(wanted, got, strict=True)
    )


async def _calls_pass(tests: list[Test], code: str, sandbox: Sandbox, limits: Limits) -> bool:
    if not tests:
        return True
    calls = [(t.input.function, t.input.args) for t in tests if isinstance(t.input, Call)]
    try:
        script = code + _CALLS.format(calls=ordered_repr(calls), mark=_MARK)
    except (ValueError, RecursionError):  # an integer of too many digits for source
        return False
    answers = await _script(script, len(tests), sandbox, limits)
    return answers is not None and all(
        _equal(_pictured(test.expected), _pictured(answer))
        for test, answer in zip(tests, answers, strict=True)
    )


async def _asserts_pass(tests: list[Test], code: str, sandbox: Sandbox, limits: Limits) -> bool:
    if not tests:
        return True
    sources = [t.input.source for t in tests if isinstance(t.input, Asserts)]
    script = code + "\n" + _ASSERTS.format(sources=sources, mark=_MARK)
    return await _script(script, len(tests), sandbox, limits) is not None


async def _script(
    source: str, n_tests: int, sandbox: Sandbox, limits: Limits
) -> list[object] | None:
    """Return the values that a script printed after the mark, one per test; None if it failed."""
    whole = replace(limits, cpu_s=limits.cpu_s * n_tests, wall_s=limits.wall_s * n_tests)
    (execution,) = await sandbox.run(Program(source=source), [Stdin("")], whole)
    lines = [line for line in execution.stdout.split("\n") if line.startswith(_MARK)]
    if execution.status is not Status.finished or len(lines) != n_tests:
        return None
    return [_value(line.removeprefix(_MARK)) for line in lines]


def _value(text: str) -> object:
    """Parse a `repr`; return an object that equals nothing if it is not plain data."""
    try:
        (statement,) = syntax_tree(text.strip()).body
        assert isinstance(statement, ast.Expr)
        return ast.literal_eval(_Floats().visit(statement.value))
    except (
        ValueError,
        SyntaxError,
        TypeError,
        AssertionError,
        RecursionError,
        MemoryError,
    ):
        return object()


class _Floats(ast.NodeTransformer):
    """A transformer of the names inf and nan into floats."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node


def _pictured(value: Any) -> Any:
    """Convert tuples to lists, as in JSON data sets."""
    if isinstance(value, (list, tuple)):
        return [_pictured(item) for item in value]
    if isinstance(value, dict):
        return {key: _pictured(item) for key, item in value.items()}
    return value


def _equal(expected: Any, got: Any) -> bool:
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(_equal, expected, got))
    if isinstance(expected, dict) and isinstance(got, dict):
        return expected.keys() == got.keys() and all(
            _equal(value, got[key]) for key, value in expected.items()
        )
    if isinstance(expected, float) and isinstance(got, (int, float)):
        return _near(expected, float(got))
    return type(expected) is type(got) and expected == got


def _number(token: str) -> float | None:
    try:
        return float(token)
    except ValueError:
        return None


def _near(expected: float | None, got: float | None) -> bool:
    if expected is None or got is None:
        return False
    both_nan = expected != expected and got != got
    return both_nan or math.isclose(expected, got, rel_tol=1e-6, abs_tol=1e-6)
