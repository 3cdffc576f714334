"""Expected values for tests without any: the values that the problem's own solution returns.

The solution runs in the sandbox. The values are cached in the user's cache folder, with one file per
problem. Its name is a hash of the program, the function, its arguments and the interpreter. An
interrupted run loses at most the problems in progress. A damaged file is recomputed.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from coding_model_project import codec
from coding_model_project.atomic import replacing
from coding_model_project.concurrency import Background
from coding_model_project.data.loaders.base import Place, SetAside, Trail
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.progress import Advance, progress_bar
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.embedded.languages.binaries import cache_folder
from coding_model_project.types import Call, Execution, Limits, Problem, Program, Status

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
            return f"its solution fails on input {number}: {_last_line(one)}"
    return [[one.value] if one.status is Status.finished else [] for one in executions]


def _last_line(execution: Execution) -> str:
    lines = execution.stderr_tail.strip().splitlines()
    return f"{execution.status}: {lines[-1][:200]}" if lines else str(execution.status)


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
