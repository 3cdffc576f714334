"""A program is not blamed for the machine's doing, and cannot pretend that it was."""

import asyncio
import contextlib
import os
import signal
import sys
import time

import psutil
import pytest

from coding_model_project.errors import OverloadError
from coding_model_project.isolation.confine import Tier
from coding_model_project.isolation.proc_files import MOST_WAITS, wall_limit
from coding_model_project.sandbox.embedded import EmbeddedSandbox, slot
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.types import Asserts, Call, Limits, Program, Status, Stdin
from tests.processes import below
from tests.text_cases import sources

SOURCES = sources(__file__)

pytestmark = pytest.mark.sandbox

LIMITS = Limits(cpu_s=5, wall_s=20, memory_mb=256, output_kb=64)
SLEEP = "import time\ndef f(n=9):\n    time.sleep(n)\n    return n\n"
SLEEPS = SLEEP + "if __name__ == '__main__':\n    f()\n"
ASSERTS = Asserts("assert f(9) == 9", entry_point="f")


async def leaves(n: int, zygote: str = f"{slot.__package__}.zygote") -> list[psutil.Process]:
    """The processes that run a program and its tests, once there are `n` of them."""
    while True:
        with contextlib.suppress(psutil.NoSuchProcess):  # one that ends meanwhile
            started = [one for one in below(zygote) if one.ppid() != os.getpid()]
            found = [one for one in started if not one.children()]
            if len(found) == n:
                return found
        await asyncio.sleep(0.02)


async def ended_by_the_kernel(sandbox, program, inputs, *, n=1, which=0):
    """The executions of a program one of whose processes is killed as the kernel does."""
    running = asyncio.ensure_future(sandbox.run(program, inputs, LIMITS))
    found = await leaves(n)
    await asyncio.sleep(0.2)
    found[which].send_signal(signal.SIGKILL)
    return await running


@pytest.mark.parametrize("kills", [0, 1], ids=["unexplained", "for lack of memory"])
@pytest.mark.parametrize(
    ("inputs", "n", "which"),
    [([Stdin("")], 1, 0), ([Call("f", (9,))], 1, 0), ([ASSERTS], 2, 0), ([ASSERTS], 2, 1)],
    ids=["script", "call", "program of asserts", "asserts"],
)
async def test_a_kill_of_the_kernel_is_no_crash(sandbox, monkeypatch, inputs, n, which, kills):
    program = Program(source=SLEEPS if isinstance(inputs[0], Stdin) else SLEEP)
    counts = iter([0])
    monkeypatch.setattr(slot, "oom_kills", lambda: next(counts, kills))
    if kills:
        with pytest.raises(OverloadError, match="out of memory"):
            await ended_by_the_kernel(sandbox, program, inputs, n=n, which=which)
        (after,) = await sandbox.run(Program(source="print(1)"), [Stdin("")], LIMITS)
        assert after.stdout == "1\n"
        return
    executions = await ended_by_the_kernel(sandbox, program, inputs, n=n, which=which)
    assert [one.status for one in executions] == [Status.killed]


async def test_a_program_that_kills_itself_never_becomes_an_overload(sandbox):
    program = Program(source="import os\ndef f():\n    os.kill(os.getpid(), 9)\n    return 1\nf()")
    for given in (Stdin(""), Call("f", ()), Asserts("assert f() == 1", entry_point="f")):
        (execution,) = await sandbox.run(program, [given], LIMITS)
        if sandbox.tier is Tier.namespaces:  # the first process of a namespace cannot
            assert execution.status is Status.finished
        else:
            assert (execution.status, execution.exit_code) == (Status.killed, None)


async def test_a_compiler_killed_by_the_kernel_is_no_compile_error(monkeypatch):
    if problem := toolchains.why_not("cpp", Tier.namespaces):
        pytest.skip(problem)
    slow = "template <int A, int B> struct F { static const long v = F<A - 1, B>::v + F<A, B - 1>::v; };"
    ends = "template <int B> struct F<0, B> { static const long v = 1; };"
    also = "template <int A> struct F<A, 0> { static const long v = 1; };"
    kills = 0
    monkeypatch.setattr(slot, "oom_kills", lambda: kills)
    async with EmbeddedSandbox(workers=1, min_tier="rlimit") as sandbox:
        await sandbox.run(Program(source="int main() {}", language="cpp"), [Stdin("")], LIMITS)
        compiler = None
        while compiler is None:  # a busy machine may see none of a compilation's processes
            other = f"// {time.monotonic_ns()}"  # no compiled one is known
            source = f"{slow}{ends}{also}int main() {{ return F<300, 300>::v; }} {other}"
            program = Program(source=source, language="cpp")
            running = asyncio.ensure_future(sandbox.run(program, [Stdin("")], LIMITS))
            while compiler is None and not running.done():
                await asyncio.sleep(0.02)
                compiler = next((one for one in below("native") if named(one) == "cc1plus"), None)
        compiler.kill()
        kills += 1
        with pytest.raises(OverloadError):
            await running


def named(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


# ── waiting for a core ────────────────────────────────────────────────────────────────────────────


def test_waits_for_a_core_extend_the_wall_limit_within_a_bound():
    assert wall_limit(0.9, 1.0, 0.0) is None
    assert wall_limit(1.0, 1.0, 0.0) == "wall"
    assert wall_limit(3.0, 1.0, 2.5) is None
    assert wall_limit(3.5, 1.0, 2.5) == "wall"
    assert wall_limit(1.0 + MOST_WAITS, 1.0, 1.0 + MOST_WAITS) == "starved"
    assert wall_limit(9.0, float("inf"), 3.0) is None


BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(input())"


@pytest.mark.parametrize(
    ("compiled_loop", "n"),
    [(True, 1), (True, 2), (False, 1)],
    ids=["alone", "one by one", "Python"],
)
async def test_a_program_that_waits_for_a_core_is_not_late(compiled_loop, n):
    """It needs 0.3 seconds of a core that it shares with at least four other processes."""
    core = {min(os.sched_getaffinity(0))}
    spin = [sys.executable, "-c", "while True: pass"]
    before = below(f"{slot.__package__}.zygote")
    sandbox = EmbeddedSandbox(workers=1, min_tier="rlimit", compiled_loop=compiled_loop)
    others = []
    try:
        async with sandbox:
            others = [psutil.Popen(spin) for _ in range(4)]
            for one in [*others, *below(f"{slot.__package__}.zygote")]:
                if one not in before:
                    one.cpu_affinity(core)
            limits = Limits(cpu_s=5, wall_s=1, memory_mb=256, output_kb=64)
            with contextlib.suppress(OverloadError):
                for one in await sandbox.run(Program(source=BUSY), [Stdin("1")] * n, limits):
                    assert (one.status, one.stdout) == (Status.finished, "1\n")
    finally:
        for one in others:
            one.kill()
            one.wait()


# ── within the program's own limits ───────────────────────────────────────────────────────────────


def nested(depth: int) -> str:
    """A short source whose `finally` blocks the compiler copies into each other."""
    lines = [f"{' ' * n}try:\n{' ' * n} x()\n{' ' * n}finally:" for n in range(depth)]
    return "\n".join([*lines, " " * depth + "y=" + "+".join(["f()"] * 200)])


@pytest.mark.parametrize("n", [1, 2], ids=["alone", "one after another"])
async def test_compiling_keeps_the_programs_memory_limit(n):
    async with EmbeddedSandbox(workers=1, min_tier="rlimit") as sandbox:
        limits = Limits(cpu_s=5, wall_s=20, memory_mb=128, output_kb=64)
        executions = await sandbox.run(Program(source=nested(17)), [Stdin("")] * n, limits)
    assert [one.status for one in executions] == [Status.syntax_error] * n
    assert "MemoryError" in executions[0].stderr_tail


THREADS = SOURCES["threads"]


async def test_as_many_threads_as_are_allowed_fit_the_default_memory_limit(sandbox):
    limits = Limits(cpu_s=30, wall_s=90)
    (execution,) = await sandbox.run(Program(source=THREADS), [Stdin("900")], limits)
    assert (execution.status, execution.stdout) == (Status.finished, "0 900\n"), execution
