"""Values, exceptions, classes, objects and functions that cross between tests and programs.

`crossing.txt` has a program, `---` with its entry point, and tests of it for each case.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from coding_model_project.errors import DataError
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Asserts, Limits, Program, Status

pytestmark = pytest.mark.sandbox

LIMITS = Limits(cpu_s=2, wall_s=20, memory_mb=256, output_kb=64)


async def outcome(sandbox, code: str, entry: str, tests: str) -> str:
    given = Asserts(source=tests, entry_point=entry or None)
    try:
        (ended,) = await sandbox.run(Program(source=code), [given], LIMITS)
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
