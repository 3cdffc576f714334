"""Real servers that drain, and a fleet of them under programs (`tests.soak.fleet` takes 10,000)."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import httpx
import pytest

from coding_model_project.sandbox.fusion import wire
from tests.soak import fleet

pytestmark = [pytest.mark.contract, pytest.mark.sandbox, pytest.mark.timeout(300)]

PROGRAMS = 150


async def test_sigterm_finishes_what_was_accepted_and_refuses_the_rest(server):
    slow = {"code": "import time; time.sleep(3); print(7)", "language": "python"}
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        accepted = [asyncio.ensure_future(client.post("/run_code", json=slow)) for _ in range(3)]
        while await _accepted(client) < 3:
            await asyncio.sleep(0.05)
        server.send(signal.SIGTERM)
        while (ready := await client.get("/v1/ready")).status_code == 200:
            await asyncio.sleep(0.05)
        refused = await client.post("/run_code", json=slow)
        assert (ready.status_code, refused.status_code) == (503, 503)
        assert (await client.get("/v1/ping")).status_code == 200, "it is alive"
        assert "sandbox_leaving 1.0" in (await client.get("/metrics")).text
        assert wire.LEAVING in refused.headers
        assert refused.headers["retry-after"]
        answers = [(await one).json()["run_result"]["stdout"] for one in accepted]
        assert answers == ["7\n"] * 3
    assert server.ended() == 0


async def _accepted(client: httpx.AsyncClient) -> float:
    """Return the number of requests that run or wait."""
    lines = [line.split() for line in (await client.get("/metrics")).text.splitlines()]
    counted = ("sandbox_running", "sandbox_waiting")
    return sum(float(number) for name, number, *_ in lines if name in counted)


async def test_no_program_is_lost_wrong_or_counted_twice():
    outcome = await fleet.run(PROGRAMS, replace(fleet.LIMITS, cpu_s=0.4))
    assert outcome.ok, outcome
    assert sum("used from now on" in line for line in outcome.said) >= 3
    assert sum("and not used" in line for line in outcome.said) == 1
