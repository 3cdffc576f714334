"""The compiled loop: what comes by it is what the loop in Python would say, and nothing is lost by it."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import EmbeddedSandbox, slot
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Input,
    Limits,
    Program,
    Status,
    Stdin,
)
from tests.processes import below, ran
from tests.tables import tables
from tests.text_cases import sources

SOURCES = sources(__file__)
CASES = tables("sandbox")

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.xdist_group("fork server"),  # which starts sandboxes once
    pytest.mark.skipif(slot.compiled_loop() is None, reason="no C compiler is here"),
]

LIMITS = Limits(cpu_s=1, wall_s=5, memory_mb=128, output_kb=64)
AMONG_OTHERS, ALONE = 2, 1
PROGRAMS: dict[str, tuple[str, Input]] = {
    "a long input": ("import sys\nprint(len(sys.stdin.buffer.read()))", Stdin("x" * 3_000_000)),
    "a call": ("def f(a, b): return {'sum': a + b}", Call("f", ([1], [2.5, "x" * 100_000]))),
    "a method": ("class Solution:\n    def f(self, n): return -n", Call("f", (2**70,))),
    "a call by a long name": ("def " + "ж" * 200 + "(): return 1", Call("ж" * 200)),
    "a call by a name that JSON makes long": ("def " + "𠀀" * 64 + "(): return 1", Call("𠀀" * 64)),
    "a deep source": ("x = " + "(" * 5000 + ")" * 5000, Stdin("")),
}
PROGRAMS |= {
    source: (source, Stdin(given) if function is None else Call(function))
    for source, given, function in CASES["programs"]
}


def verdict(execution: Execution) -> tuple[object, ...]:
    """All but what it cost."""
    stderr = execution.stderr_tail
    return execution.status, execution.stdout, execution.value, execution.exit_code, stderr


@pytest.fixture(scope="module")
async def both(tier):
    """A sandbox of each tier with the compiled loop, and one with the loop in Python."""
    made = [
        EmbeddedSandbox(workers=1, min_tier="rlimit", tier=tier, compiled_loop=compiled)
        for compiled in (True, False)
    ]
    async with made[0], made[1]:
        yield made


@pytest.mark.parametrize("n", [ALONE, AMONG_OTHERS])
async def test_says_what_the_loop_in_python_says(both, n):
    for name, (source, given) in PROGRAMS.items():
        compiled, in_python = [
            [verdict(e) for e in await sandbox.run(Program(source=source), [given] * n, LIMITS)]
            for sandbox in both
        ]
        assert compiled == in_python, name


async def test_limits_hold_alone_and_among_others(both):
    spin = Program(source="while True: pass")
    sleep = Program(source="import time\ntime.sleep(9)")
    for n in (ALONE, AMONG_OTHERS):
        brief = Limits(cpu_s=0.2, wall_s=5, memory_mb=128, output_kb=64)
        for execution in await both[0].run(spin, [Stdin("")] * n, brief):
            assert execution.status is Status.cpu_timeout and 0.2 <= execution.cpu_s < 0.6
        impatient = Limits(cpu_s=5, wall_s=0.3, memory_mb=128, output_kb=64)
        for execution in await both[0].run(sleep, [Stdin("")] * n, impatient):
            assert execution.status is Status.wall_timeout and 0.3 <= execution.wall_s < 2


async def test_each_program_is_run_by_its_own_limits(both):
    program = Program(source="print('x' * 10_000)")
    for output_kb, status in [(5, Status.output_limit), (20, Status.finished)] * 2:
        limits = Limits(cpu_s=1, wall_s=5, memory_mb=128, output_kb=output_kb)
        (execution,) = await both[0].run(program, [Stdin("")], limits)
        assert execution.status is status


MOST = SOURCES["most memory"]


async def test_a_program_has_the_same_memory_whichever_loop_runs_it(both):
    """The largest single allocation differs by a few pages at most, which the loop itself takes."""
    program, call = Program(source=MOST), Call(function="most", args=(0,))
    found = []
    for sandbox in both:
        for n in (ALONE, AMONG_OTHERS):
            found += [int(e.stdout) for e in await sandbox.run(program, [Stdin("")] * n, LIMITS)]
            found += [e.value for e in await sandbox.run(program, [call] * n, LIMITS)]
    assert min(found) >= LIMITS.memory_mb << 20
    assert max(found) - min(found) < 1 << 20


async def test_tests_draw_random_numbers_of_their_own(both):
    program = Program(source="import random\nprint(random.random())")
    drawn = [
        execution.stdout
        for n in (ALONE, ALONE, AMONG_OTHERS)
        for execution in await both[0].run(program, [Stdin("")] * n, LIMITS)
    ]
    assert len(set(drawn)) == 4


async def test_nothing_it_left_goes_on(both):
    """Only without a filter may a program start others."""
    if both[0].tier is not Tier.rlimit:
        pytest.skip("programs start no processes at this tier")
    source = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)"
    assert (await both[0].run(Program(source=source), [Stdin("")], LIMITS))[0].status is (
        Status.finished
    )
    assert (await both[0].run(Program(source="print(1)"), [Stdin("")], LIMITS))[0].stdout == "1\n"
    assert len(below("embedded.zygote")) == 2


LOOK_BACK = SOURCES["look back"]
"""Prints where memory holds `another` and, joined by a line, `program`."""


@pytest.mark.parametrize("n", [ALONE, AMONG_OTHERS])
async def test_finds_nothing_of_another_program(both, n):
    text = "#" + "-" * 20_000 + "another" + "_program"
    for sandbox in both:
        for n_before in (ALONE, AMONG_OTHERS):
            await sandbox.run(Program(source=text), [Stdin(text)] * n_before, LIMITS)
            for seen in await sandbox.run(Program(source=LOOK_BACK), [Stdin("")] * n, LIMITS):
                assert seen.stdout == "looked\n", (seen, n_before)


LOOK_AT_TMP = "\n" + SOURCES["look at tmp"]


@pytest.mark.parametrize("n", [ALONE, AMONG_OTHERS])
async def test_finds_tmp_as_new_whatever_the_last_test_did_to_it(both, n):
    if both[0].tier is not Tier.namespaces:
        pytest.skip("programs have no files of their own at this tier")
    (new,) = await both[1].run(Program(source=f"import os{LOOK_AT_TMP}"), [Stdin("")], LIMITS)
    assert new.status is Status.finished
    for leaves in CASES["leaves in tmp"]:
        source = f"import os\nif input():\n    {leaves.replace(chr(10), chr(10) + '    ')}\n"
        program = Program(source=f"{source}else:{LOOK_AT_TMP.replace(chr(10), chr(10) + '    ')}")
        for _ in range(2):
            inputs = [Stdin("leave\n"), Stdin("\n")]
            if n == ALONE:
                looked = [(await both[0].run(program, [one], LIMITS))[0] for one in inputs]
            else:
                looked = await both[0].run(program, inputs * 2, LIMITS)
            assert {one.stdout for one in looked[1::2]} == {new.stdout}, leaves


async def test_an_empty_file_is_there(both):
    if both[0].tier is not Tier.namespaces:
        pytest.skip("programs have no files of their own at this tier")
    program = Program(source="print(open('empty').read() == '')", files={"empty": b""})
    for n in (ALONE, AMONG_OTHERS):
        for execution in await both[0].run(program, [Stdin("")] * n, LIMITS):
            assert execution.stdout == "True\n"


async def test_shares_memory_with_no_process(both):
    """Or a program could write what its parent takes for the state of the next."""
    if both[0].tier is not Tier.rlimit:
        pytest.skip("/proc cannot be read at this tier")
    shared = "len([line for line in open('/proc/self/maps') if 'rw-s' in line])"
    program = Program(source=f"def f(): return {shared}\nif __name__ == '__main__': print(f())")
    asserts = Asserts(source="assert f() == 0")
    (alone,) = await both[0].run(program, [Stdin("")], LIMITS)
    first, tests, last = await both[0].run(program, [Stdin(""), asserts, Stdin("")], LIMITS)
    assert [alone.stdout, first.stdout, tests.value, last.stdout] == ["0\n", "0\n", True, "0\n"]


def slow_to_compile(depth: int) -> str:
    """Each level is compiled twice."""
    if depth == 0:
        return "x = 1\n"
    inner = "".join(f" {line}\n" for line in slow_to_compile(depth - 1).splitlines())
    return f"try:\n x = 1\nfinally:\n{inner}"


async def test_a_slow_compilation_is_not_the_programs_time(both):
    if both[0].tier is not Tier.seccomp:
        pytest.skip("it is the same at each tier")
    program = Program(source=slow_to_compile(15) + "while True: pass")
    limits = Limits(cpu_s=0.1, wall_s=5, memory_mb=512, output_kb=64)
    (execution,) = await both[0].run(program, [Stdin("")], limits)
    assert execution.status is Status.cpu_timeout and 0.1 <= execution.cpu_s < 0.5


async def test_a_killed_zygote_takes_what_it_compiles_along(both):
    import asyncio

    program = Program(source=slow_to_compile(19) + "import time\ntime.sleep(30)")
    roomy = Limits(cpu_s=1, wall_s=5, memory_mb=2048, output_kb=64)  # to compile it for seconds
    run = asyncio.create_task(both[0].run(program, [Stdin("")], roomy))
    compiling = []
    for _ in range(100):
        await asyncio.sleep(0.05)
        compiling = [process for process in below("embedded.zygote") if process.children()]
        if compiling:
            break
    (zygote,) = compiling
    (child,) = zygote.children()
    zygote.kill()
    await asyncio.to_thread(psutil.wait_procs, [child], timeout=2)
    assert not child.is_running()
    run.cancel()


def test_a_host_with_many_files_open(tmp_path):
    """The channel must not lie where the descriptors of tests are put."""
    script = tmp_path / "host.py"
    script.write_text(SOURCES["a host with many files"])
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["1"] * 12, done.stderr


async def test_a_compiled_loop_that_is_gone_is_done_without(monkeypatch):
    monkeypatch.setattr(slot, "compiled_loop", lambda: Path("/nonexistent.so"))
    async with EmbeddedSandbox(workers=1, min_tier="rlimit") as sandbox:
        (execution,) = await sandbox.run(Program(source="print(1)"), [Stdin("")], LIMITS)
    assert execution.stdout == "1\n"


def test_a_user_without_a_home_has_it_too(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert slot.compiled_loop.__wrapped__() is not None


@pytest.mark.parametrize("fails", [True, False], ids=["a compiler that fails", "no compiler"])
def test_without_a_compiler_that_works_there_is_none(monkeypatch, tmp_path, fails):
    if fails:
        (compiler := tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
        compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if fails else "/nonexistent")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert slot.compiled_loop.__wrapped__() is None
    assert not list(tmp_path.rglob("*.so"))


def test_nothing_that_the_forking_process_imports_runs_in_every_fork():
    script = (
        "import os\n"
        "os.register_at_fork = lambda **handlers: print(handlers)\n"
        "import coding_model_project.sandbox.embedded.zygote\n"
    )
    done = ran([sys.executable, "-c", script], timeout=60)
    assert (done.stdout, done.stderr) == ("", "")


async def test_a_program_finds_nothing_of_the_rehearsal():
    source = SOURCES["look for the rehearsal"]
    async with EmbeddedSandbox(workers=1) as sandbox:
        alone = await sandbox.run(Program(source=source), [Stdin("1 2")], LIMITS)
        twice = await sandbox.run(Program(source=source), [Stdin("1 2"), Stdin("1 2")], LIMITS)
    folder = "/tmp" if sandbox.tier is Tier.namespaces else ""
    assert {execution.stdout for execution in [*alone, *twice]} == {
        f"['sys', 'warnings']\nTrue True ['main.py']\nTrue False {folder}/main.py\n1 2 ['ignore']\n"
    }
