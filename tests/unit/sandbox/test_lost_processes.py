"""Processes of the embedded sandbox that die, or are told to end."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from coding_model_project.errors import SandboxError
from coding_model_project.sandbox import embedded
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Limits, Program, Stdin
from tests.processes import below, ended
from tests.text_cases import sources

SOURCES = sources(__file__)

pytestmark = pytest.mark.sandbox

LIMITS = Limits(cpu_s=5, wall_s=10, memory_mb=256, output_kb=64)
ECHO = Program(source="print(input())")
ZYGOTE = f"{embedded.__name__}.zygote"
SLEEP = Program(source="import time\ntime.sleep(0.5)\nprint(input())")


async def running(n: int) -> list[psutil.Process]:
    """Wait until `n` processes run below this one, and return them, parents first."""
    while len(found := below(ZYGOTE)) != n:
        await asyncio.sleep(0.01)
    return found


async def amid_a_run(sandbox: EmbeddedSandbox) -> tuple[asyncio.Task, list[psutil.Process]]:
    """Return a run of two inputs, and its zygote, program and test, which were seen at once.

    A busy machine may see none of a run's tests before they end.
    """
    while True:
        run = asyncio.create_task(outputs(sandbox, SLEEP, "a", "b"))
        while not run.done():
            if len(found := below(ZYGOTE)) == 3:
                return run, found
            await asyncio.sleep(0.01)


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those still there after two seconds; what only waits for init to reap it is not."""
    deadline = time.monotonic() + 2.0
    while processes and time.monotonic() < deadline:
        time.sleep(0.01)
        processes = [process for process in processes if not ended(process)]
    return processes


async def outputs(sandbox: EmbeddedSandbox, program: Program, *texts: str) -> list[str]:
    return [e.stdout for e in await sandbox.run(program, [Stdin(t) for t in texts], LIMITS)]


async def test_killed_zygote_is_replaced_amid_a_run(tier):
    async with EmbeddedSandbox(workers=1, min_tier="rlimit", tier=tier) as sandbox:
        run, everything = await amid_a_run(sandbox)
        everything[0].kill()
        assert await run == ["a\n", "b\n"]
        assert alive(everything) == []
        assert await outputs(sandbox, ECHO, "c") == ["c\n"]


async def test_killed_process_of_a_program_is_retried(tier):
    async with EmbeddedSandbox(workers=1, min_tier="rlimit", tier=tier) as sandbox:
        run, (_zygote, program, _test) = await amid_a_run(sandbox)
        program.kill()
        assert await run == ["a\n", "b\n"]


async def test_a_program_whose_process_keeps_dying_is_the_sandboxs_failure(tier):
    async with EmbeddedSandbox(workers=1, min_tier="rlimit", tier=tier) as sandbox:
        run = asyncio.create_task(outputs(sandbox, SLEEP, "a", "b"))
        while not run.done():
            for process in below(ZYGOTE):
                try:
                    if process.ppid() != os.getpid():
                        process.kill()
                except psutil.Error:
                    continue
            await asyncio.sleep(0.02)
        assert run.exception() is None or isinstance(run.exception(), SandboxError)
        assert await outputs(sandbox, ECHO, "b") == ["b\n"]


async def test_leaving_stops_everything(tier):
    async with EmbeddedSandbox(workers=2, min_tier="rlimit", tier=tier) as sandbox:
        slow = asyncio.create_task(
            sandbox.run(Program(source="while True: pass"), [Stdin("")] * 2, LIMITS)
        )
        everything = await running(n=4)  # two zygotes, a program, a test
    assert not any(process.is_running() for process in everything)  # reaped, too
    with pytest.raises(SandboxError, match="closed"):
        await slow


async def test_cancelling_frees_the_worker(tier):
    async with EmbeddedSandbox(workers=1, min_tier="rlimit", tier=tier) as sandbox:
        texts = [Stdin("x")] * 100
        run = asyncio.create_task(sandbox.run(SLEEP, texts, LIMITS))
        await asyncio.sleep(0.2)
        run.cancel()
        started = time.monotonic()
        assert await outputs(sandbox, ECHO, "a") == ["a\n"]
        assert time.monotonic() - started < 25  # of the 50 it would have slept


async def test_dies_with_its_host(tier):
    script = SOURCES["a host"].replace("TIER", repr(str(tier)))
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    with host.stdout:
        started = [psutil.Process(int(pid)) for pid in host.stdout.readline().split()]
        host.send_signal(signal.SIGKILL)
        host.wait()
    assert len(started) == 3
    assert alive(started) == []
