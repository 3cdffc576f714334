"""How fast the embedded sandbox is, beside the plainest peer: a `python -I -S` process per test."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

import psutil

from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Limits, Program, Stdin

_SOURCE = "n = int(input())\nprint(sum(int(word) for word in input().split()) + n)"
_STDIN = "3\n1 2 3\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Medians over rounds. CPU is that of host and sandbox together."""

    tests_per_s: float
    programs_per_s: float
    cpu_ms_per_test: float
    p99_ms: float
    """99th percentile of a program's wall time, all its tests included, once it has a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Both sides under the same load of the machine: their rounds alternate."""

    identity: str
    embedded: Throughput
    subprocess: Throughput


async def measure(
    *, rounds: int = 5, programs: int = 40, tests: int = 8, workers: int | None = None
) -> Measurement:
    """Run `programs` × `tests` small tests per round on each side.

    Raises:
        SandboxError: the sandbox does not start here.
    """
    n = workers or len(os.sched_getaffinity(0))
    gate = asyncio.Semaphore(n)
    results: tuple[list[Throughput], list[Throughput]] = ([], [])
    async with EmbeddedSandbox(workers=n) as sandbox:
        with ThreadPoolExecutor(n) as threads:

            async def one(embedded: bool) -> float:
                async with gate:
                    started = time.perf_counter()
                    if embedded:
                        await sandbox.run(
                            Program(source=_SOURCE), [Stdin(_STDIN)] * tests, Limits()
                        )
                    else:
                        loop = asyncio.get_running_loop()
                        await loop.run_in_executor(threads, _peer, tests)
                    return time.perf_counter() - started

            for _ in range(rounds):
                for embedded, kept in zip((True, False), results, strict=True):
                    cpu_s, started = _cpu_s(), time.perf_counter()
                    walls = await asyncio.gather(*(one(embedded) for _ in range(programs)))
                    wall_s, cpu_s = time.perf_counter() - started, _cpu_s() - cpu_s
                    kept.append(_throughput(walls, wall_s, cpu_s, programs * tests))
        embedded, peer = (_median(kept) for kept in results)
        return Measurement(identity=sandbox.identity, embedded=embedded, subprocess=peer)


def _peer(tests: int) -> None:
    for _ in range(tests):
        command = [sys.executable, "-I", "-S", "-c", _SOURCE]
        subprocess.run(command, input=_STDIN.encode(), capture_output=True, check=True)


def _cpu_s() -> float:
    """CPU time of this process, its ended children, and its living ones with theirs."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total + sum(sum(child.cpu_times()[:4]) for child in psutil.Process().children())


def _throughput(walls: list[float], wall_s: float, cpu_s: float, tests: int) -> Throughput:
    return Throughput(
        tests_per_s=tests / wall_s,
        programs_per_s=len(walls) / wall_s,
        cpu_ms_per_test=1000 * cpu_s / tests,
        p99_ms=1000 * statistics.quantiles(walls, n=100, method="inclusive")[98],
    )


def _median(rounds: list[Throughput]) -> Throughput:
    names = [field.name for field in fields(Throughput)]
    return Throughput(**{n: statistics.median(getattr(r, n) for r in rounds) for n in names})
