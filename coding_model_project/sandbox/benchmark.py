"""A benchmark of the embedded sandbox and its peers, in alternating rounds under the same machine load.

Peers: a `python -I -S` process per test, and, given a URL, a SandboxFusion server. The server is measured
with this project's client (several programs per request) and as other clients use it (a plain
`/run_code` request per test).
Three workloads: programs of many tests, for tests per second and CPU time per test; programs of one test,
for programs per second and their latency; programs of many tests that are calls of a function.
The sandbox is measured with all its workers and with fewer.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, fields

import httpx
import psutil

from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import SandboxError
from coding_model_project.http import bearer, secret_of
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.fusion import FusionSandbox, wire
from coding_model_project.sandbox.fusion.client import TOKEN_VARIABLE
from coding_model_project.types import Call, Input, Limits, Program, Status, Stdin

_SOURCE = "n = int(input())\nprint(sum(int(word) for word in input().split()) + n)"
_STDIN = "3\n1 2 3\n"
_FUNCTION = "def total(words):\n    return sum(int(word) for word in words.split()) + 3"
_REQUESTS_PER_CORE = 4
"""Concurrent requests to a server: it reads the next one's request while one program runs."""

_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Medians over rounds. CPU time is that of host and sandbox together."""

    tests_per_s: float
    programs_per_s: float
    """Programs with one test, per second."""
    cpu_ms_per_test: float | None
    """CPU milliseconds per test; None for a server whose processes this machine cannot see."""
    p99_ms: float
    """99th percentile of the wall time of a program with one test, without queueing."""
    calls_per_s: float | None = None
    """Tests per second of programs with many calls; None for a side without such tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Results of all sides under the same machine load: their rounds alternate."""

    identity: str
    embedded: Throughput
    """The embedded sandbox, with a process per test."""
    subprocess: Throughput
    scaling: dict[int, float]
    """Tests per second of `embedded` by its number of workers, all of them last."""
    http: Throughput | None = None
    """A server, with this project's client."""
    run_code: Throughput | None = None
    """The same server, with a request per test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    run: Callable[[int], Awaitable[None]]
    """Run one program on this number of tests."""
    at_once: int
    call: Callable[[int], Awaitable[None]] | None = None
    """Call one program's function this number of times."""
    server: psutil.Process | None = None
    sees_cpu: bool = True


async def measure(
    *,
    rounds: int = 5,
    programs: int = 40,
    tests: int = 20,
    workers: int | None = None,
    url: str | None = None,
) -> Measurement:
    """Run `programs` programs of `tests` small tests, and as many of one test, per round and side.

    Args:
        url: URL of a SandboxFusion server to measure too.

    Raises:
        SandboxError: the sandbox does not start here, or the server fails.
        ConfigError: the URL is not a SandboxFusion server's.
    """
    n = workers or usable_cores()
    async with AsyncExitStack() as stack:
        embedded = await stack.enter_async_context(EmbeddedSandbox(workers=n))
        threads = stack.enter_context(ThreadPoolExecutor(n))

        async def plain(tests: int) -> None:
            await asyncio.get_running_loop().run_in_executor(threads, _processes, tests)

        sides = {
            "embedded": _by_sandbox(embedded, n),
            "subprocess": _Side(run=plain, at_once=n),
        }
        if url is not None:
            sides |= await _server_sides(stack, url, _REQUESTS_PER_CORE * n)
        powers_of_two = [1 << k for k in range(n.bit_length())]
        fewer = {w: _by_sandbox(embedded, w) for w in powers_of_two if w < n}
        kept: dict[str, list[Throughput]] = {name: [] for name in sides}
        rates: dict[int, list[float]] = {w: [] for w in fewer}
        for _ in range(rounds):
            for name, side in sides.items():
                kept[name].append(await _round(side, programs, tests))
            for w, side in fewer.items():
                rates[w].append(
                    programs * tests / (await _all_of(side, side.run, programs, tests))[1]
                )
        medians = {name: _median(found) for name, found in kept.items()}
        scaling = {w: statistics.median(found) for w, found in rates.items()}
        scaling[n] = medians["embedded"].tests_per_s
        return Measurement(identity=embedded.identity, scaling=scaling, **medians)


def _by_sandbox(
    sandbox: Sandbox, at_once: int, server: psutil.Process | None = None, *, sees_cpu: bool = True
) -> _Side:
    async def run(program: str, inputs: Sequence[Input]) -> None:
        found = await sandbox.run(Program(source=program), inputs, Limits())
        if any(execution.status is not Status.finished for execution in found):
            raise SandboxError(
                f"{sandbox.identity} reports {found[0].status} for a correct program"
            )

    return _Side(
        run=lambda tests: run(_SOURCE, [Stdin(_STDIN)] * tests),
        call=lambda tests: run(_FUNCTION, [Call(function="total", args=("1 2 3",))] * tests),
        at_once=at_once,
        server=server,
        sees_cpu=sees_cpu,
    )


async def _server_sides(stack: AsyncExitStack, url: str, at_once: int) -> dict[str, _Side]:
    fusion = await stack.enter_async_context(FusionSandbox([url], max_concurrency=at_once))
    client = await stack.enter_async_context(
        httpx.AsyncClient(
            base_url=url,
            headers=bearer(secret_of(TOKEN_VARIABLE)),
            timeout=_ANSWER_S,
            trust_env=False,
        )
    )
    body = wire.run_code(_SOURCE, "python", stdin=_STDIN, run_s=10.0)

    async def request_per_test(tests: int) -> None:
        for _ in range(tests):
            try:
                answer = await client.post("/run_code", json=body)
                worked = answer.status_code == 200 and answer.json()["status"] == "Success"
            except (httpx.HTTPError, ValueError, KeyError) as error:
                raise SandboxError(f"{url}: {type(error).__name__} {error}") from error
            if not worked:
                raise SandboxError(f"{url}: HTTP {answer.status_code}, {answer.text[:200]}")

    server = _listening(httpx.URL(url))
    sees_cpu = server is not None
    return {
        "http": _by_sandbox(fusion, at_once, server, sees_cpu=sees_cpu),
        "run_code": _Side(run=request_per_test, at_once=at_once, server=server, sees_cpu=sees_cpu),
    }


def _listening(url: httpx.URL) -> psutil.Process | None:
    """Return the server's process, if it is on this machine and visible to this user."""
    if url.host not in ("127.0.0.1", "localhost", "::1"):
        return None
    with suppress(psutil.Error):
        for socket in psutil.net_connections("tcp"):
            listens = socket.status == psutil.CONN_LISTEN and socket.pid
            if listens and tuple(socket.laddr)[1:] == (url.port or 80,):
                return psutil.Process(socket.pid)
    return None


async def _all_of(
    side: _Side, run: Callable[[int], Awaitable[None]], programs: int, tests: int
) -> tuple[list[float], float]:
    """Run programs and return the wall seconds of each, without queueing, and of all."""
    gate = asyncio.Semaphore(side.at_once)

    async def one() -> float:
        async with gate:
            started = time.perf_counter()
            await run(tests)
            return time.perf_counter() - started

    started = time.perf_counter()
    walls = await asyncio.gather(*(one() for _ in range(programs)))
    return walls, time.perf_counter() - started


async def _round(side: _Side, programs: int, tests: int) -> Throughput:
    used_s = cpu_s(side.server)
    _, many_s = await _all_of(side, side.run, programs, tests)
    used_s = cpu_s(side.server) - used_s
    walls, single_s = await _all_of(side, side.run, programs, 1)
    calls_s = None
    if side.call is not None:
        _, calls_s = await _all_of(side, side.call, programs, tests)
    return Throughput(
        tests_per_s=programs * tests / many_s,
        programs_per_s=programs / single_s,
        cpu_ms_per_test=1000 * used_s / (programs * tests) if side.sees_cpu else None,
        p99_ms=1000 * statistics.quantiles(walls, n=100, method="inclusive")[98],
        calls_per_s=None if calls_s is None else programs * tests / calls_s,
    )


def _processes(tests: int) -> None:
    for _ in range(tests):
        command = [sys.executable, "-I", "-S", "-c", _SOURCE]
        subprocess.run(command, input=_STDIN.encode(), capture_output=True, check=True)


def cpu_s(server: psutil.Process | None = None) -> float:
    """Return the CPU seconds of this process, a server and their children, ended ones included."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    living = psutil.Process().children()
    living += [server, *server.children()] if server else []
    return total + sum(sum(process.cpu_times()[:4]) for process in living)


def _median(rounds: Sequence[Throughput]) -> Throughput:
    def median(name: str) -> float | None:
        values = [getattr(one, name) for one in rounds]
        return None if None in values else statistics.median(values)

    return Throughput(**{field.name: median(field.name) for field in fields(Throughput)})  # pyrefly: ignore[bad-argument-type]
