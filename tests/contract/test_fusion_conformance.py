"""FusionSandbox over real processes: `sandbox serve`, and a server that confines nothing itself.

With `SANDBOXFUSION_URL=http://host:8080` a real SandboxFusion server is tested too.
"""

import asyncio
import os
import random
import re
import shutil
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import pytest

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.retries import Limiter
from coding_model_project.sandbox import conformance
from coding_model_project.sandbox.benchmark import measure
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.fusion import FusionSandbox, capabilities, fleet, packing, wire
from coding_model_project.synthetic import tinycode
from coding_model_project.synthetic.tinycode import NoiseConfig, noisy_solution
from coding_model_project.types import Call, Limits, Problem, Program, Status, Stdin, Verdict
from tests.bench import fusion as bench
from tests.contract.conftest import ServerProcess
from tests.processes import ran
from tests.soak import fleet as many_programs
from tests.tables import tables
from tests.text_cases import text_cases
from tests.unit.sandbox.fusion_servers import PlainServer, driver_answer

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]

URL = os.environ.get("SANDBOXFUSION_URL", "")
LIMITS = Limits(cpu_s=5, wall_s=15, memory_mb=256, output_kb=512)
BRIEF = Limits(cpu_s=1, wall_s=30, memory_mb=256, output_kb=64)
SLOW = Program(source="import time\ntime.sleep(0.2)\nprint(input())")


@pytest.fixture(params=["strongest", "rlimit", *([URL] if URL else [])])
def plain(request, monkeypatch) -> PlainServer | str:
    """A server that confines nothing, with the driver at its strongest tier, or its weakest; and a real
    one's URL."""
    if request.param == "rlimit":
        monkeypatch.setattr(capabilities, "TIERS", (request.param,))
    return URL if request.param == URL else PlainServer()


def over(plain: PlainServer | str, **options) -> FusionSandbox:
    if isinstance(plain, str):
        return FusionSandbox([plain], **options)
    return FusionSandbox(["http://plain:1"], transport=plain, **options)


async def outputs(sandbox: FusionSandbox, program: Program, *texts: str) -> list[str]:
    executions = await sandbox.run(program, [Stdin(text) for text in texts], LIMITS)
    return [execution.stdout for execution in executions]


async def test_conforms_over_a_server(any_server, shared_server):
    async with FusionSandbox([any_server]) as sandbox:
        assert [str(finding) for finding in await conformance.check(sandbox)] == []
        if any_server == shared_server.url:
            async with EmbeddedSandbox(workers=1) as embedded:
                assert sandbox.identity == embedded.identity.replace("embedded", "fusion")


async def test_a_server_is_measured_beside_the_sandbox(shared_server):
    found = await measure(rounds=1, programs=4, tests=2, url=shared_server.url)
    for side in (found.embedded, found.subprocess, found.http, found.run_code):
        assert side is not None
        assert min(side.tests_per_s, side.programs_per_s, side.p99_ms) > 0
        assert side.cpu_ms_per_test  # the server's processes are this machine's


async def test_conforms_by_its_driver(plain):
    async with over(plain, max_concurrency=4) as sandbox:
        assert [str(finding) for finding in await conformance.check(sandbox)] == []
        if "/rlimit/" not in sandbox.identity and plain != URL:
            async with EmbeddedSandbox(workers=1) as embedded:
                assert sandbox.identity == embedded.identity.replace("embedded", "fusion")


@pytest.mark.soak
async def test_the_driver_runs_on_every_python_here():
    for version, python in _interpreters().items():
        plain = PlainServer(python=python)
        async with over(plain, max_concurrency=2, retry_s=1.0) as sandbox:
            assert sandbox.identity.endswith(f"/cpython-{version}")
            calls = [Call(function="f", args=({1, 2}, 10**50)), Call(function="f", args=((), None))]
            executions = await sandbox.run(Program(source="def f(*x): return x"), calls, LIMITS)
            assert [e.value for e in executions] == [({1, 2}, 10**50), ((), None)]
            bad = await sandbox.run(Program(source="def f(:"), calls, LIMITS)
            assert [e.status for e in bad] == [Status.syntax_error] * 2


def _interpreters() -> dict[str, str]:
    """This Python, and others of the versions that a server may have, where they work."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for version in ("3.10", "3.12", "3.13"):
        python = shutil.which(f"python{version}")
        said = python and ran([python, "-V"])
        if python and said and f"Python {version}." in said.stdout:
            found[version] = python
    return found


async def test_too_old_a_python_is_refused_in_one_line(tmp_path):
    old = tmp_path / "python"
    old.write_text(
        f"#!/bin/sh\nsed 's/sys.version_info < (3, 10)/True/' $1 > $1.py; exec {sys.executable} $1.py\n"
    )
    old.chmod(0o755)
    with pytest.raises(ConfigError, match=r"needs Python 3\.10 or later") as caught:
        async with over(PlainServer(python=str(old))):
            raise AssertionError("it started")
    assert "\n" not in str(caught.value)


# ── what a program tries in a server that confines nothing ────────────────────────────────────────

_FORGED = driver_answer(secret=b"guess")
ATTACKS = {
    name: text.replace("FORGED", repr(_FORGED)).replace("ANSWER_FILE", capabilities.ANSWER_FILE)
    for name, _, text in text_cases(__file__, "driver_attacks.txt")
}


async def test_a_program_cannot_pose_as_the_driver_or_disturb_it(plain):
    inputs, gained = [Stdin("first"), Stdin("SECOND")], []
    async with over(plain, retry_s=0.0) as sandbox:
        for name, source in ATTACKS.items():
            executions = await sandbox.run(Program(source=source), inputs, LIMITS)
            said = " ".join(one.stdout for one in executions)
            if len(executions) != 2 or re.search("opened|may signal|found", said):
                gained.append(name)
    assert gained == []


async def test_no_program_is_anothers_answer(plain):
    """Those that end badly and those that end well arrive mixed, and each gets its own."""
    ends = tables("sandbox")["ends"]
    programs: list[tuple[str, object]] = [(source, Status(status)) for source, status in ends]
    programs += [(f"print({n}, input())", f"{n} a\n") for n in range(30)]
    random.Random(1).shuffle(programs)
    async with over(plain, max_concurrency=2) as sandbox:
        found = await asyncio.gather(
            *(sandbox.run(Program(source=s), [Stdin("a")] * 2, BRIEF) for s, _ in programs)
        )
    for (source, expected), executions in zip(programs, found, strict=True):
        assert len(executions) == 2
        for one in executions:
            assert expected in (one.status, one.stdout), (source, one)


async def test_an_answer_too_long_for_standard_output_is_fetched_whole():
    source = "import random\nprint(random.Random(1).randbytes(200_000).hex())"
    async with over(PlainServer()) as sandbox:
        (execution,) = await sandbox.run(Program(source=source), [Stdin("")], LIMITS)
        assert execution.stdout == random.Random(1).randbytes(200_000).hex() + "\n"


async def test_other_languages_run_as_the_server_runs_them():
    async with over(PlainServer()) as sandbox:
        program = Program(source="read n; echo $((n * 2)); exit $n", language="bash")
        executions = await sandbox.run(program, [Stdin("0\n"), Stdin("3\n")], LIMITS)
    assert [e.stdout for e in executions] == ["0\n", "6\n"]
    assert [e.status for e in executions] == [Status.finished, Status.raised]


# ── the same verdicts ─────────────────────────────────────────────────────────────────────────────


def tinycode_programs(n: int) -> list[tuple[Problem, str]]:
    """Gold, known-bad and noisy programs, drawn by a fixed seed."""
    draw, some = random.Random(7), list(tinycode.compositions())[::9]
    programs: list[tuple[Problem, str]] = []
    with pytest.MonkeyPatch.context() as only:  # all tasks take seconds
        only.setattr(tinycode, "compositions", lambda: some)
        tasks = tinycode.generate(seed=7).tasks
    for task in draw.sample(tasks, n // 3):
        problem = replace(task.problem, limits=replace(task.problem.limits, cpu_s=0.25))
        programs += [
            (problem, problem.gold[0]),
            (problem, draw.choice(problem.bad)),
            (problem, noisy_solution(task, draw, NoiseConfig())),
        ]
    return programs


def essence(verdict: Verdict) -> tuple[object, ...]:
    """All of a verdict that does not say where or how fast it was found."""
    return verdict.problem_id, verdict.passed, [result.error for result in verdict.results]


async def judged(sandbox, programs, at_once: int, *, stop_early: bool) -> list[tuple[object, ...]]:
    grader = ExecutionGrader(sandbox, stop_early=stop_early, limiter=Limiter(at_once))
    found = await asyncio.gather(*(grader.grade_code(*program) for program in programs))
    return list(map(essence, found))


@pytest.mark.parametrize("stop_early", [False, True])
async def test_verdicts_are_those_of_the_embedded_sandbox(any_server, stop_early):
    programs = tinycode_programs(30)
    async with EmbeddedSandbox() as embedded, FusionSandbox([any_server]) as fusion:
        expected = await judged(embedded, programs, 2, stop_early=stop_early)
        assert await judged(fusion, programs, 8, stop_early=stop_early) == expected
    assert {passed for _, passed, _ in expected} == {True, False}


async def test_verdicts_by_the_driver_are_those_of_the_embedded_sandbox(plain):
    programs = tinycode_programs(30)
    async with EmbeddedSandbox() as embedded, over(plain, max_concurrency=3) as fusion:
        expected = await judged(embedded, programs, 2, stop_early=False)
        assert await judged(fusion, programs, 8, stop_early=False) == expected


# ── a server that dies, hangs, comes back ─────────────────────────────────────────────────────────


async def test_a_killed_server_is_waited_for_and_nothing_is_lost(server):
    async with FusionSandbox([server.url], retry_s=60.0) as sandbox:
        runs = [asyncio.create_task(outputs(sandbox, SLOW, str(n), "x")) for n in range(16)]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(1.0)
        await asyncio.to_thread(server.start)
        assert await asyncio.gather(*runs) == [[f"{n}\n", "x\n"] for n in range(16)]


async def test_a_server_that_stays_away_is_an_error_and_never_an_execution(server):
    async with FusionSandbox([server.url], retry_s=2.0) as sandbox:
        runs = [asyncio.create_task(outputs(sandbox, SLOW, str(n))) for n in range(8)]
        await asyncio.sleep(0.3)
        await asyncio.to_thread(server.kill)
        found = await asyncio.gather(*runs, return_exceptions=True)
        assert all(isinstance(f, SandboxError) or f == [f"{n}\n"] for n, f in enumerate(found))
        assert any(isinstance(f, SandboxError) for f in found)


async def test_another_server_takes_over_from_a_hanging_one(server, monkeypatch):
    monkeypatch.setattr(fleet, "_WATCH_S", 0.5)
    other = ServerProcess()
    try:
        async with FusionSandbox([server.url, other.url], ping_s=1.0) as sandbox:
            limits = Limits(cpu_s=1, wall_s=1)
            server.send(signal.SIGSTOP)

            async def one(n: int) -> str:
                program = Program(source="print(input())")
                (execution,) = await sandbox.run(program, [Stdin(str(n))], limits)
                return execution.stdout

            found = await asyncio.gather(*(one(n) for n in range(20)))
            assert found == [f"{n}\n" for n in range(20)]
    finally:
        other.stop()


async def test_a_server_told_to_stop_answers_what_it_has_begun(server):
    async with FusionSandbox([server.url], retry_s=0.0) as sandbox:
        run = asyncio.create_task(outputs(sandbox, SLOW, *"abcde"))
        async with httpx.AsyncClient(base_url=server.url) as client:
            while "sandbox_running 0.0" in (await client.get("/metrics")).text:
                await asyncio.sleep(0.05)
        assert await asyncio.to_thread(server.stop) == 0
        assert await run == [f"{letter}\n" for letter in "abcde"]


async def test_beyond_capacity_nothing_is_lost_and_waiting_costs_no_time():
    small = ServerProcess("--workers", "1", "--max-waiting", "0")
    try:
        async with AsyncExitStack() as stack:
            trainers = [
                await stack.enter_async_context(FusionSandbox([small.url], retry_s=60.0))
                for _ in range(4)
            ]
            limits = Limits(cpu_s=1, wall_s=1)  # less than what comes before takes
            runs = (trainers[n % 4].run(SLOW, [Stdin(str(n))], limits) for n in range(12))
            found = await asyncio.gather(*runs)
        assert [e.stdout for (e,) in found] == [f"{n}\n" for n in range(12)]
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"{small.url}/metrics")).text
        assert float(text.split("\nsandbox_refused_total ")[1].split()[0]) > 0
    finally:
        small.stop()


async def test_a_program_longer_than_a_batchs_budget_goes_on_in_another(monkeypatch):
    monkeypatch.setattr(packing, "BUDGET_S", 0.3)
    plain = PlainServer()
    async with over(plain) as sandbox:
        asked = len(plain.requests)
        assert await outputs(sandbox, SLOW, *"abcdef") == [f"{letter}\n" for letter in "abcdef"]
        assert 2 <= len(plain.requests) - asked <= 6


# ── few requests to a real server ─────────────────────────────────────────────────────────────────


class Counting(httpx.AsyncHTTPTransport):
    """Counts the requests that run code."""

    n = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.n += request.url.path == "/run_code"
        return await super().handle_async_request(request)


@pytest.mark.skipif(not URL, reason="SANDBOXFUSION_URL names no server")
async def test_programs_share_requests_and_stop_early():
    transport = Counting()
    async with FusionSandbox([URL], transport=transport) as sandbox:
        asked = transport.n
        await asyncio.gather(*(bench.by(sandbox)(1) for _ in range(64)))
        assert transport.n - asked <= 8
        asked = transport.n
        wrong = await sandbox.run(
            Program(source="print(1)"), [Stdin("")] * 20, BRIEF, stop_when=lambda *_: True
        )
        assert (len(wrong), transport.n - asked) == (1, 1)


# ── real servers that drain, and a fleet of them ──────────────────────────────────────────────────


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
    outcome = await many_programs.run(PROGRAMS, replace(many_programs.LIMITS, cpu_s=0.4))
    assert outcome.ok, outcome
    assert sum("used from now on" in line for line in outcome.said) >= 3
    assert sum("and not used" in line for line in outcome.said) == 1
