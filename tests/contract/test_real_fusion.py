"""A real SandboxFusion server, given by its address: `SANDBOXFUSION_URL=http://host:8080 pytest …`.

With it `test_fusion_conformance` holds that server to the contract, too.
"""

from __future__ import annotations

import asyncio
import os
import random
import time

import httpx
import pytest

from coding_model_project.sandbox.fusion import FusionSandbox
from coding_model_project.types import Limits, Program, Status, Stdin
from tests.bench import fusion as bench

URL = os.environ.get("SANDBOXFUSION_URL", "")

pytestmark = [
    pytest.mark.contract,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not URL, reason="SANDBOXFUSION_URL names no server"),
]
LIMITS = Limits(cpu_s=1, wall_s=30, memory_mb=256, output_kb=64)


class Counting(httpx.AsyncHTTPTransport):
    """Counts the requests that run code."""

    n = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.n += request.url.path == "/run_code"
        return await super().handle_async_request(request)


async def test_programs_share_requests_and_stop_early():
    transport = Counting()
    async with FusionSandbox([URL], transport=transport) as sandbox:
        asked = transport.n
        await asyncio.gather(*(bench.by(sandbox)(1) for _ in range(64)))
        assert transport.n - asked <= 8
        asked = transport.n
        wrong = await sandbox.run(
            Program(source="print(1)"), [Stdin("")] * 20, LIMITS, stop_when=lambda *_: True
        )
        assert (len(wrong), transport.n - asked) == (1, 1)


async def test_no_program_is_anothers_answer():
    """Those that end badly and those that end well arrive mixed, and each gets its own."""
    ends = {
        "1 / 0": Status.raised,
        "while True: pass": Status.cpu_timeout,
        "while True: print('x' * 9999)": Status.output_limit,
        "x = b'x' * 10**9": Status.memory_limit,
        "import os\nos.abort()": Status.signalled,
        "import ctypes\nctypes.string_at(0)": Status.signalled,
        "import os\nos._exit(3)": Status.raised,
        "def f(:": Status.syntax_error,
    }
    programs: list[tuple[str, object]] = [*ends.items()] * 2
    programs += [(f"print({n}, input())", f"{n} a\n") for n in range(60)]
    random.Random(1).shuffle(programs)
    async with FusionSandbox([URL]) as sandbox:
        found = await asyncio.gather(
            *(sandbox.run(Program(source=s), [Stdin("a")] * 2, LIMITS) for s, _ in programs)
        )
    for (source, expected), executions in zip(programs, found, strict=True):
        assert len(executions) == 2
        for one in executions:
            assert expected in (one.status, one.stdout), (source, one)


@pytest.mark.alone
async def test_the_samples_of_a_step_take_seconds():
    async with FusionSandbox([URL]) as sandbox:
        assert await bench.of_a_step(sandbox, sparse=False) < 10


@pytest.mark.alone
async def test_programs_of_many_tests_are_ten_times_as_fast_as_requests_of_one():
    async with (
        httpx.AsyncClient(base_url=URL, timeout=120, trust_env=False) as client,
        FusionSandbox([URL]) as sandbox,
    ):
        ratios = []
        for _ in range(3):
            plain = await bench.seconds(bench.by_requests(client), 4, 8, 8) / 32
            ours = await bench.seconds(bench.by(sandbox), 20, 32, 1024) / 640
            ratios.append(plain / ours)
        assert max(ratios) > 10, ratios


@pytest.mark.alone
async def test_programs_of_one_test_are_no_slower_than_requests_of_one():
    async with (
        httpx.AsyncClient(base_url=URL, timeout=120, trust_env=False) as client,
        FusionSandbox([URL]) as sandbox,
    ):
        started = time.perf_counter()
        await bench.seconds(bench.by_requests(client), 1, 32, 8)
        plain_s = time.perf_counter() - started
        assert await bench.seconds(bench.by(sandbox), 1, 32, 1024) < plain_s
