"""Asserts in a process of their own: how they end, and that programs do not know them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from coding_model_project.errors import DataError
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import (
    Asserts,
    Execution,
    Limits,
    Program,
    Status,
)
from tests.tables import tables
from tests.text_cases import sources

SOURCES = sources(__file__)

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.xdist_group("asserts"),
]  # which starts sandboxes once

LIMITS = Limits(cpu_s=1, wall_s=5, memory_mb=256, output_kb=64)


async def run(sandbox, code: str, tests: str, entry: str | None = None, **limits) -> Execution:
    bounds = Limits(**{"cpu_s": 1, "wall_s": 5, "memory_mb": 256, "output_kb": 64} | limits)
    given = Asserts(source=tests, entry_point=entry)
    (execution,) = await sandbox.run(Program(source=code), [given], bounds)
    return execution


ENDS = tables("asserts")


# `sandbox.conformance` has those that any sandbox must end so.
@pytest.mark.parametrize("name", ENDS)
async def test_ends(sandbox, name):
    code, tests, status, says = ENDS[name]
    execution = await run(
        sandbox, code, tests, entry="f", cpu_s=0.3, wall_s=1 if name == "sleep" else 15
    )
    assert (execution.status, execution.value) == (Status(status), None)
    assert says in execution.stderr_tail


async def test_tests_that_do_not_compile_are_no_verdict(any_sandbox):
    with pytest.raises(DataError, match="do not compile: SyntaxError"):
        await run(any_sandbox, "def f(): return 1", "assert f(")
    with pytest.raises(DataError, match="not valid Unicode"):
        await run(any_sandbox, "def f(): return 1", "assert f('\ud800')")
    assert (await run(any_sandbox, "def f(): return 1", "assert f()")).value is True


async def test_tests_are_nowhere_in_the_programs_memory(any_sandbox):
    """A program can find everything that was ever in the memory of the process that forks it."""
    code = SOURCES["a look for its tests"]
    tests = "# hidden_marker " * 500 + "\nassert f() == 0"
    given = [Asserts(source=tests)] * 3
    executions = await any_sandbox.run(Program(source=code), given, Limits(output_kb=64))
    assert [e.value for e in executions] == [True] * 3


CROSSING_LIMITS = Limits(cpu_s=2, wall_s=20, memory_mb=256, output_kb=64)


async def outcome(sandbox, code: str, entry: str, tests: str) -> str:
    given = Asserts(source=tests, entry_point=entry or None)
    try:
        (ended,) = await sandbox.run(Program(source=code), [given], CROSSING_LIMITS)
    except DataError:
        return "ungradable"
    if ended.value is True:
        return "passes"
    return f"fails: {ended.value if ended.status is Status.finished else ended.stderr_tail}"


async def test_crossing():
    text = (Path(__file__).parent / "crossing.txt").read_text()
    cases = re.findall(r"^=== (.+) \| (.+)\n([^\0]*?)^---(.*)\n([^\0]*?)(?=^===|\Z)", text, re.M)
    assert len(cases) == text.count("=== ")
    async with EmbeddedSandbox(workers=2, min_tier="rlimit") as sandbox:
        found = await asyncio.gather(
            *(outcome(sandbox, code, entry.strip(), tests) for _, _, code, entry, tests in cases)
        )
    expected = {name: wanted for name, wanted, *_ in cases}
    wrong = {
        name: got
        for (name, wanted), got in zip(expected.items(), found, strict=True)
        if not got.startswith(wanted.partition(":")[0]) or wanted.partition(": ")[2] not in got
    }
    assert wrong == {}
