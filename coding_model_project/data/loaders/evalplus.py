"""HumanEval+ and MBPP+: EvalPlus's inputs for the two benchmarks. Test only.

A row has inputs and a solution, but no outputs: the expected values are those that the solution returns.
The first tests are the benchmark's own (`Problem.base_tests`). As in EvalPlus, a
program runs on all inputs in one process (`Problem.isolation`), and values compare by its rules
(`grading.compare`).
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import sys
import zlib
from collections.abc import Iterator, Sequence, ValuesView
from contextlib import closing, suppress
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from coding_model_project import codec
from coding_model_project.atomic import replacing
from coding_model_project.concurrency import Background
from coding_model_project.data.loaders.base import Part, Place, Row, SetAside, Trail, Unusable, text
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.progress import Advance, progress_bar
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.embedded.languages.build import cache_folder
from coding_model_project.types import (
    Call,
    Limits,
    Plain,
    Problem,
    Program,
    Status,
    Test,
)

# ── types that JSON lacks ─────────────────────────────────────────────────────────────────────────
#
# A row's assertions call the function with the original arguments. A list in an input becomes a tuple if
# all assertions have a tuple at that position, at every depth; the same holds for sets, and for numbers
# stored as text. All but nine of the 378 tasks of MBPP+ thus get the same types as in EvalPlus
# (`mbpp_deserialize_inputs` of evalplus 0.3.1); the nine have their own example here.

_AT_ANY_DEPTH: Any = reduce(lambda inner, _: (inner,), range(50), (0,))

_CONTAINERS = (list, tuple, set, ValuesView)

_EXAMPLES: dict[str, list[Any]] = {
    "Mbpp/98": [[0]],
    "Mbpp/104": [[[""]]],
    "Mbpp/124": [0.0, 0j],
    "Mbpp/140": [[[0]]],
    "Mbpp/145": [[0]],
    "Mbpp/252": [0j],
    "Mbpp/580": [_AT_ANY_DEPTH],
    "Mbpp/596": [([0],)],
    "Mbpp/791": [_AT_ANY_DEPTH],
}
"""Example arguments for tasks whose assertions have other types than EvalPlus's calls."""


def typed(
    task: str, assertions: str, function: str, inputs: Sequence[Sequence[Plain]]
) -> list[list[Plain]]:
    """Return the inputs of a task with the types that its function expects.

    Raises:
        Unusable: the assertions do not call the function.
    """
    example = _EXAMPLES.get(task)
    calls = [example] if example is not None else _calls(assertions, function)
    n = max(map(len, inputs), default=0)
    examples = [[call[i] for call in calls if i < len(call)] for i in range(n)]
    return [
        [_typed(arg, known) for arg, known in zip(args, examples, strict=False)] for args in inputs
    ]


def _calls(assertions: str, function: str) -> list[list[Any]]:
    """Return the arguments of each call of a function."""
    try:
        calls = [
            [_value(arg) for arg in node.args]
            for node in ast.walk(syntax_tree(assertions))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == function
        ]
    except SyntaxError as error:
        raise Unusable(f"field 'assertion' does not parse: {error}") from error
    if not calls:
        raise Unusable(f"field 'assertion': no call of {function}")
    return calls


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        make = {"set": set, "tuple": tuple, "list": list}.get(node.func.id)
        if make is not None:
            return make(_value(node.args[0]))
    try:
        return ast.literal_eval(node)
    except ValueError:  # an expression such as 14*14, which is not a container and so irrelevant
        return None


def _typed(value: Any, examples: Sequence[Any]) -> Any:
    """Return a value with the types that examples have at its position; unchanged without any."""
    kinds = set(map(type, examples))
    match value:
        case _ if not kinds:
            return value
        case list():
            inner = _inside(examples)
            items = [_typed(item, inner) for item in value]
            if set in kinds:  # {} is a dict; if both types occur, it means the empty set
                return set(items) if items or dict not in kinds else {}
            return tuple(items) if tuple in kinds and list not in kinds else items
        case dict():
            inner = _inside(examples)
            return {key: _typed(item, inner) for key, item in value.items()}
        case str() if str not in kinds and complex in kinds:
            return complex(value)
        case str() if str not in kinds and float in kinds:
            return float(value)
    return value


def _inside(examples: Sequence[Any]) -> list[Any]:
    """Return the values in the containers of the examples."""
    containers = [one.values() if isinstance(one, dict) else one for one in examples]
    return [item for one in containers if isinstance(one, _CONTAINERS) for item in one]


# ── expected values: what a problem's own solution returns ────────────────────────────────────────
#
# The solution runs in the sandbox. The values are cached in the user's cache folder, with one file per
# problem. Its name is a hash of the program, the function, its arguments and the interpreter. An
# interrupted run loses at most the problems in progress. A damaged file is recomputed.


LIMITS = Limits(cpu_s=120.0, wall_s=300.0, memory_mb=4096, output_kb=65_536)
"""Limits of a solution, which is trusted to end."""

NOT_NONE = "evalplus_not_none"
"""The comparison that checks only whether a value is None."""

_FORMAT = b"expected 2"
_OPAQUE = b'{"o": '
"""The start of an encoded value that is not plain data; in a text, its quotes are escaped."""

_ALL = """
def _expected_values(inputs):
    return [{function}(*arguments) for arguments in inputs]
"""
"""All calls in one process, as in the publisher's code; the solution is trusted to keep no state."""

_Values = list[Any]
"""The value of each input in a list of one, or an empty list if it is too large."""

_TOO_LARGE = (Status.memory_limit, Status.output_limit)


def with_expected(table: TableLoader, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
    """Add expected values to the problems of a data set, with a progress bar if some are not cached.

    An input is left out, with a note, if its value is too large for judging within `Problem.limits`.

    Raises:
        SandboxError: the sandbox failed.
    """
    found = list(table.converted(place, trail))
    problems = [item for item in found if isinstance(item, Problem)]
    values: dict[str, _Values | str | None] = {one.id: _known(one) for one in problems}
    if unknown := [one for one in problems if values[one.id] is None]:
        solver, label = Background(EmbeddedSandbox), f"{table.published.name}: expected values"
        with closing(solver), progress_bar(label, len(unknown)) as advance:
            values |= solver.run(lambda sandbox: _all(sandbox, unknown, advance))
    for item in found:
        known = values[item.id] if isinstance(item, Problem) else None
        if isinstance(item, SetAside) or known is None:
            yield item
        elif isinstance(known, str):
            yield SetAside(where=item.id, reason=known)
        else:
            yield _with(item, known, trail)


async def _all(
    sandbox: EmbeddedSandbox, problems: Sequence[Problem], advance: Advance
) -> dict[str, _Values | str]:
    async def one(problem: Problem) -> tuple[str, _Values | str]:
        values = await computed(sandbox, problem)
        advance()
        return problem.id, values

    return dict(await asyncio.gather(*map(one, problems)))


async def computed(sandbox: EmbeddedSandbox, problem: Problem) -> _Values | str:
    """Return the values of a problem's solution, which are then cached, or the reason for having none."""
    values = await _at_once(sandbox, problem) or await _one_by_one(sandbox, problem)
    if isinstance(values, str):
        return values
    most = problem.limits.output_kb << 10
    values = [one if len(codec.dumps(one)) < most else [] for one in values]
    if problem.comparison == NOT_NONE:
        values = [[one[0] is not None] for one in values if one]
    encoded = codec.dumps(values)
    if _OPAQUE in encoded:
        return "its solution returns a value that is not plain data"
    with suppress(OSError):  # without a cache, the next run computes the values again
        path = _path(problem)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with replacing(path) as partial:
            partial.write_bytes(zlib.compress(encoded))
    return values


async def _at_once(sandbox: EmbeddedSandbox, problem: Problem) -> _Values | None:
    program = problem.gold[0] + _ALL.format(function=problem.entry_point)
    arguments: list[Any] = [
        list(test.input.args) for test in problem.tests if isinstance(test.input, Call)
    ]
    call = Call("_expected_values", (arguments,))
    (execution,) = await sandbox.run(Program(source=program), [call], LIMITS)
    value = execution.value
    if execution.status is Status.finished and isinstance(value, list):
        return [[one] for one in value]
    return None


async def _one_by_one(sandbox: EmbeddedSandbox, problem: Problem) -> _Values | str:
    inputs = [test.input for test in problem.tests]
    executions = await sandbox.run(Program(source=problem.gold[0]), inputs, LIMITS)
    for number, one in enumerate(executions):
        if one.status not in (Status.finished, *_TOO_LARGE):
            lines = one.stderr_tail.strip().splitlines()
            last = f": {lines[-1][:200]}" if lines else ""
            return f"its solution fails on input {number}: {one.status}{last}"
    return [[one.value] if one.status is Status.finished else [] for one in executions]


def _with(problem: Problem, values: _Values, trail: Trail) -> Problem:
    n_left_out = sum(not one for one in values)
    if n_left_out:
        trail.notes.append(
            f"{problem.id}: {n_left_out} of {len(values)} inputs left out: their values take more than "
            f"{problem.limits.output_kb >> 10} MB"
        )
    pairs = list(zip(problem.tests, values, strict=True))
    base = sum(bool(one) for _, one in pairs[: problem.base_tests])
    tests = tuple(replace(test, expected=one[0]) for test, one in pairs if one)
    return replace(problem, tests=tests, base_tests=base)


# ── the cache ─────────────────────────────────────────────────────────────────────────────────────


def _path(problem: Problem) -> Path:
    made_of = hashlib.sha256(_FORMAT)
    made_of.update(f"{sys.version_info[:3]} {problem.comparison}\0{problem.gold[0]}".encode())
    for test in problem.tests:
        assert isinstance(test.input, Call)
        made_of.update(codec.dumps([test.input.function, test.input.args]))
    return cache_folder() / "expected" / f"{made_of.hexdigest()[:32]}.z"


def _known(problem: Problem) -> _Values | None:
    """Return the cached values; None without a file, or if it is damaged."""
    try:
        values = codec.loads(zlib.decompress(_path(problem).read_bytes()))
    except (OSError, ValueError, zlib.error):
        return None
    return values if isinstance(values, list) and len(values) == len(problem.tests) else None


_COMPARISONS = {
    "HumanEval/32": "evalplus_root",
    "Mbpp/164": "evalplus_any_value",
    "Mbpp/295": "evalplus_or_zero",
    "Mbpp/558": "evalplus_digits",
    "Mbpp/581": "evalplus_pyramid",
    **{f"Mbpp/{n}": "evalplus_set" for n in (2, 7, 111, 140, 232, 249, 579, 769)},
}
"""Comparisons of tasks with several right values; see `grading.compare`."""

_NOT_NONE = {"check_str", "text_match_three", "text_starta_endb"}
"""Functions of MBPP+ that may return a match object, which is not plain data, like the author's."""


def humaneval(row: Row, _part: Part) -> Row:
    """Return a row of HumanEval+ with its tests."""
    return _prepared(row, _inputs(row, "base_input"), _inputs(row, "plus_input"))


def mbpp(row: Row, _part: Part) -> Row:
    """Return a row of MBPP+ with its tests."""
    task, function = text(row, "task_id"), text(row, "entry_point")
    base, plus = (
        typed(task, text(row, "assertion"), function, _inputs(row, side))
        for side in ("base_input", "plus_input")
    )
    prepared = _prepared(row, base, plus)
    return {**prepared, "_comparison": NOT_NONE} if function in _NOT_NONE else prepared


def _prepared(row: Row, base: list[list[Plain]], plus: list[list[Plain]]) -> Row:
    function = text(row, "entry_point")
    return {
        **row,
        "_tests": tuple(
            Test(Call(function, tuple(args)), expected=None) for args in (*base, *plus)
        ),
        "_base_tests": len(base),
        "_comparison": _COMPARISONS.get(text(row, "task_id"), "evalplus"),
        "_rtol": 1e-7,
        "_gold": text(row, "prompt") + text(row, "canonical_solution"),
    }


def _inputs(row: Row, field: str) -> list[list[Plain]]:
    value = row.get(field)
    if value == {}:  # MBPP 793 has no additional inputs
        return []
    if not isinstance(value, list) or not all(isinstance(args, list) for args in value):
        raise Unusable(f"field '{field}' is not a list of lists of arguments")
    return value
