"""Few requests to a real SandboxFusion server, given by its address in `SANDBOXFUSION_URL`.

`test_fusion_conformance` runs on it too; `tests.bench.fusion` measures its speed.
"""

from __future__ import annotations

import asyncio
import os

import httpx
import pytest

from coding_model_project.sandbox.fusion import FusionSandbox
from coding_model_project.types import Limits, Program, Stdin
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
