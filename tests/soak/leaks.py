"""100,000 executions must leave nothing behind: no process, descriptor, file, mount or memory.

python -m tests.soak.leaks [EXECUTIONS]
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import psutil

from coding_model_project.errors import SandboxError
from coding_model_project.progress import progress_bar
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Call, Limits, Program, Stdin
from tests.soak.remains import MARK, Remains, resident_mb
from tests.soak.sources import SOURCES
from tests.tables import tables

EXECUTIONS = 100_000
INPUTS = 20
SAMPLES = 50
WARM_UP = 0.2
"""Share of the executions before memory must stop growing: allocators and caches fill first."""

GROWTH_MB = 3.0
"""Limit of the growth of resident memory after the warm-up, by its linear trend."""

FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", ".")
SETTLE_S = 5.0
LIMITS = Limits(cpu_s=0.2, wall_s=2.0, memory_mb=128, output_kb=64)
LITTER = SOURCES["litter"].replace("FOLDERS", repr([*FOLDERS, "/"])).replace("MARKED", MARK)

PROGRAMS = [*tables("sandbox")["ends of leaks"], LITTER, "def f(x): return [x] * 3"]
SLOW = "while True: pass"
"""A program that runs on one input only, because it uses its whole CPU limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The resources of the sandbox and its host while no program runs."""

    host_mb: float
    zygotes_mb: float
    descriptors: int
    """Descriptors of host and zygotes."""
    processes: int
    mounts: int


async def sample(host: psutil.Process, workers: int) -> Sample:
    """Return the resources once the last program's process has ended, or after a short wait."""
    deadline = time.monotonic() + SETTLE_S
    while len(zygotes := host.children(recursive=True)) > workers:
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.05)
    return Sample(
        host_mb=resident_mb(host),
        zygotes_mb=resident_mb(*zygotes),
        descriptors=host.num_fds() + sum(zygote.num_fds() for zygote in zygotes),
        processes=len(zygotes),
        mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
    )


async def run_all(executions: int) -> tuple[list[Sample], int, list[str]]:
    """Run programs in portions, and sample the resources between them.

    Returns:
        The samples, the number of executions, and the sandbox's failures.
    """
    sources = cycle(PROGRAMS)
    samples: list[Sample] = []
    failures: list[str] = []
    done, host, workers = 0, psutil.Process(), len(os.sched_getaffinity(0))
    portion = max(INPUTS, executions // SAMPLES)
    with progress_bar("executions", executions) as advance:
        async with EmbeddedSandbox(workers) as sandbox:
            print(f"sandbox: {sandbox.identity}")

            async def one(source: str, n: int) -> int:
                inputs = [Call(function="f", args=(i,)) for i in range(n)]
                if "def f(x)" not in source:
                    inputs = [Stdin(f"{i} 2\n") for i in range(n)]
                try:
                    await sandbox.run(Program(source=source), inputs, LIMITS)
                except SandboxError as error:
                    failures.append(str(error))
                for _ in inputs:
                    advance()
                return n

            while done < executions:
                batch = list(islice(sources, portion // INPUTS))
                works = [one(source, INPUTS) for source in batch]
                works.append(one(SLOW, 1))
                done += sum(await asyncio.gather(*works))
                samples.append(await sample(host, workers))
                if len(samples) % (SAMPLES // 10) == 0:
                    print(f"{done} executions: {samples[-1]}", flush=True)
    return samples, done, failures


def growth_mb(values: list[float]) -> float:
    """Return the growth over all samples after the warm-up, by their linear trend."""
    kept = values[int(len(values) * WARM_UP) :]
    if len(kept) < 3:
        return 0.0
    return statistics.linear_regression(range(len(kept)), kept).slope * len(kept)


def faults(samples: list[Sample]) -> Iterator[str]:
    """Yield the resources that were left behind."""
    settled = samples[int(len(samples) * WARM_UP)]
    for name in ("descriptors", "processes", "mounts"):
        before, after = getattr(settled, name), getattr(samples[-1], name)
        if before != after:
            yield f"{name}: {before} after the warm-up, {after} at the end"
    for name in ("host_mb", "zygotes_mb"):
        grown = growth_mb([getattr(one, name) for one in samples])
        if grown > GROWTH_MB:
            yield f"{name} grew by {grown:.1f}"


def main(executions: int) -> int:
    remains = Remains(*FOLDERS, "/")
    samples, done, failures = asyncio.run(run_all(executions))
    found = [*faults(samples), *remains.found()]
    found += [f"{len(failures)} programs lost: {failures[0]}"] if failures else []
    first, last = samples[int(len(samples) * WARM_UP)], samples[-1]
    memory = ", ".join(
        f"{who} {getattr(first, key):.1f} → {getattr(last, key):.1f} MB "
        f"(trend {growth_mb([getattr(one, key) for one in samples]):+.2f})"
        for who, key in (("host", "host_mb"), ("zygotes", "zygotes_mb"))
    )
    print(
        f"{done} executions: {memory}; {last.descriptors} descriptors, {last.processes} processes, "
        f"{last.mounts} mounts as before: {'; '.join(found) or 'ok'}"
    )
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if sys.argv[1:] else EXECUTIONS))
