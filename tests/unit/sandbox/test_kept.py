"""Asserts, in a process of their own; asserts and calls that continue one another, in the same one."""

import asyncio
import re
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coding_model_project.errors import DataError, OverloadError
from coding_model_project.grading.execution import inputs_of, judge_execution
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Isolation,
    Limits,
    Problem,
    Program,
    Status,
    Test,
)
from tests.tables import tables
from tests.text_cases import sources, text_cases

SOURCES = sources(__file__)

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("kept")]  # which starts sandboxes once

LIMITS = Limits(cpu_s=0.4, wall_s=20)

COUNTS = "seen = []\ndef f(): seen.append(1); print(len(seen)); return len(seen)"


def asserts(*sources):
    return [
        Asserts(source=source, entry_point="f", continues=number > 0)
        for number, source in enumerate(sources)
    ]


@pytest.fixture
def ends_of(any_sandbox):
    """Run a program; return the value or the status of each execution, and the executions."""

    async def run(source, inputs, limits=LIMITS):
        found = await any_sandbox.run(Program(source=source), inputs, limits)
        ends = [one.value if one.status is Status.finished else str(one.status) for one in found]
        return ends, found

    return run


async def test_asserts_that_continue_see_what_those_before_them_left(ends_of):
    ends, found = await ends_of(
        COUNTS, asserts("assert f() == 1", "assert f() == 2", "n = f()\nassert n == 3")
    )
    assert ends == [True] * 3
    assert [one.stdout for one in found] == ["1\n", "2\n", "3\n"]


@pytest.mark.parametrize(("source", "tests", "ends"), tables("sandbox")["asserts that continue"])
async def test_asserts_that_continue_end_each_for_itself(ends_of, source, tests, ends):
    assert (await ends_of(source, asserts(*tests)))[0] == ends


@pytest.mark.parametrize(
    ("source", "middle"),
    [("import os\n", "os._exit(0)"), ("", "x = sum(iter(int, 1))"), ("", "return 'a' * (2 << 20)")],
)
async def test_what_ends_the_processes_leaves_new_ones_to_the_next(ends_of, source, middle):
    source += (
        f"seen = []\ndef f(x):\n    seen.append(x)\n    if x == 2: {middle}\n    return len(seen)"
    )
    sources = ("assert f(1) == 1", "f(2)", "assert f(3) == 1", "assert f(4) == 2")
    ends, _ = await ends_of(source, asserts(*sources))
    assert ends[1] in ("raised", "cpu_timeout", "output_limit")
    assert [ends[0], *ends[2:]] == [True] * 3


def calls(*arguments, isolation=Isolation.shared):
    return inputs_of([Test(Call("f", (one,)), expected=one) for one in arguments], isolation)


async def test_calls_that_continue_see_what_those_before_them_left(ends_of):
    source = "seen = []\ndef f(x): seen.append(x); print(x); return list(seen)"
    ends, found = await ends_of(source, calls(1, 2, 3))
    assert ends == [[1], [1, 2], [1, 2, 3]]
    assert [one.stdout for one in found] == ["1\n", "2\n", "3\n"]
    ends, _ = await ends_of(source, calls(1, 2, 3, isolation=Isolation.per_test))
    assert ends == [[1], [2], [3]]


ENDS = SOURCES["ends of calls"]


async def test_a_call_ends_as_in_a_process_of_its_own(ends_of):
    limits = Limits(cpu_s=0.4, wall_s=20, memory_mb=256, output_kb=1024)
    inputs = [one for x in range(9) for one in (x, 100 + x)]
    shared, details = await ends_of(ENDS, calls(*inputs), limits)
    apart, others = await ends_of(ENDS, calls(*inputs, isolation=Isolation.per_test), limits)
    assert shared[::2] == apart[::2]
    assert apart[4] == "raised"  # to exit is no answer
    assert [one.stderr_tail for one in details[:3]] == [one.stderr_tail for one in others[:3]]
    # An exception ends the call only; what ends the process leaves a new one to the next call.
    after = [[0, 100], [0, 100, 1, 101], [102], [103], [104], [105], [106], [106, 7, 107]]
    assert shared[1::2] == [*after, [106, 7, 107, 8, 108]]


@pytest.mark.parametrize(
    ("inputs", "end"),
    [(asserts(*["f(0)"] * 4), True), (calls(*range(4)), "b" * 600_000)],
    ids=["asserts", "calls"],
)
async def test_each_has_its_own_limits(ends_of, inputs, end):
    source = SOURCES["uses half of each limit"]
    limits = Limits(cpu_s=0.5, wall_s=20, output_kb=1024)
    ends, found = await ends_of(source, inputs, limits)
    assert ends == [end] * 4
    assert sum(one.cpu_s for one in found) > limits.cpu_s


async def test_what_runs_on_after_an_answer_is_on_the_next_call(ends_of):
    source = SOURCES["a thread that runs on"]
    ends, _ = await ends_of(source, calls(0, 1, 2, 3))
    assert ends == [0, 1, "cpu_timeout", 3]


async def test_calls_use_one_object_of_their_class(ends_of):
    source = "class Solution:\n    n = 0\n    def f(self, x): self.n += 1; return self.n"
    ends, _ = await ends_of(source, calls(0, 0, 0))
    assert ends == [1, 2, 3]


async def test_a_program_that_fails_at_its_start_fails_each_call(ends_of):
    for source in ("1 / 0", "def g(): pass", "def f("):
        ends, _ = await ends_of(source, calls(1, 2, 3))
        assert ends == ["syntax_error" if source == "def f(" else "raised"] * 3


async def test_calls_end_with_the_run_that_stops_them(any_sandbox):
    program = Program(source="seen = []\ndef f(x): seen.append(x); return len(seen)")
    inputs = calls(*range(9))
    found = await any_sandbox.run(program, inputs, LIMITS, stop_when=lambda i, _: i == 3)
    assert [one.value for one in found] == [1, 2, 3, 4]
    again = await any_sandbox.run(program, inputs[5:], LIMITS)  # the first has none to continue
    assert [one.value for one in again] == [1, 2, 3, 4]
    (alone,) = await any_sandbox.run(program, inputs[5:6], LIMITS)
    assert alone.value == 1


async def test_no_run_waits_for_calls_behind_the_last_that_it_needs(any_sandbox):
    source = "import time\ndef f(x):\n    time.sleep(0 if x <= 9 else 15)\n    return x"
    began = time.monotonic()
    for _ in range(2):
        found = await any_sandbox.run(
            Program(source=source), calls(*range(40)), LIMITS, stop_when=lambda i, _: i == 9
        )
        assert [one.value for one in found] == list(range(10))
    assert time.monotonic() - began < 15


async def test_calls_behind_one_that_was_not_read_hardly_run_in_vain(ends_of):
    began = time.monotonic()
    ends, _ = await ends_of(SOURCES["leaves every second call unread"], calls(*range(21)))
    assert ends == [*range(20), "raised"]  # the last is in no process that is kept
    assert (
        time.monotonic() - began < 15
    )  # 2 s where each runs once or twice, 35 where all behind it do


@pytest.mark.parametrize("compiled_loop", [True, False])
async def test_other_inputs_between_calls_have_their_own_processes(compiled_loop):
    source = "seen = []\ndef f(x): seen.append(x); return len(seen)"
    shared = calls(1, 2)
    apart = Call("f", (3,))
    tests = [Asserts(source="assert f(1) == 1", entry_point="f")]
    async with EmbeddedSandbox(workers=1, compiled_loop=compiled_loop) as sandbox:
        found = await sandbox.run(
            Program(source=source), [*shared, apart, *shared, *tests, *shared], LIMITS
        )
    assert [one.value for one in found] == [1, 2, 1, 1, 2, True, 1, 2]


SCAN = SOURCES["scan of memory"]


def test_an_answer_that_came_in_parts_leaves_no_copy_in_memory():
    """Every process that is forked later could find it."""
    done = subprocess.run([sys.executable, "-c", SCAN], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"0\n"


ATTACK_LIMITS = Limits(cpu_s=0.3, wall_s=3, memory_mb=200, output_kb=64)
N = 4
TRIES = 4
"""Runs of an attack that a busy machine ends: the grader tries again, too."""

BEFORE = SOURCES["before an attack"]

CASES = text_cases(__file__, "shared_attacks.txt")
ATTACKS = {name: source for name, _, source in CASES}
MAY_FAIL_EVEN = {name for name, mark, _ in CASES if mark}
"""Attacks that also harm their own next input."""


def made_problem():
    tests = []
    for n in range(N):
        token = f"later-{secrets.token_hex(8)}"
        secret = [secrets.randbits(60), token]
        tests.append(Test(Call("f", (n, token)), expected=[n, token] if n % 2 == 0 else secret))
    return Problem(
        id="mine/1", split="test", statement="", tests=tuple(tests), limits=ATTACK_LIMITS,
        isolation=Isolation.shared,
    )  # fmt: skip


async def judged(sandbox, source, problem):
    inputs = inputs_of(problem.tests, problem.isolation)
    found = await sandbox.run(Program(source=source), inputs, ATTACK_LIMITS)
    results = [judge_execution(*both, problem) for both in zip(problem.tests, found, strict=True)]
    return found, [result.error is None for result in results]


async def attacked(sandbox, name):
    """Return what an attack achieved; None if nothing."""
    problem = made_problem()
    tokens = [str(test.input.args[1]) for test in problem.tests if isinstance(test.input, Call)]
    for left in reversed(range(TRIES)):
        try:
            found, passed = await judged(sandbox, BEFORE + ATTACKS[name], problem)
            break
        except OverloadError as error:
            if not left:
                return f"{name}: {error}"
    else:
        raise AssertionError
    if len(found) != N or any(passed[1::2]):
        return f"{name}: passes {passed}"
    if not passed[0] or (name not in MAY_FAIL_EVEN and not all(passed[::2])):
        return f"{name}: the other inputs {passed}, {[str(one.status) for one in found]}"
    for index, one in enumerate(found):
        seen = f"{one.stdout}{one.stderr_tail}{one.value}"
        if any(token in seen for token in tokens[index + 1 :]):
            return f"{name}: input {index} knew a later one"
        if one.cpu_s > 2 * ATTACK_LIMITS.cpu_s:
            return f"{name}: {one.cpu_s:.1f} s of CPU at input {index}"
    return None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("tier", ["namespaces", "seccomp"])
async def test_no_attack_gains_a_pass_or_a_later_input(tier):
    assert len(ATTACKS) >= 25
    async with EmbeddedSandbox(workers=2, tier=tier) as sandbox:
        gained = await asyncio.gather(*(attacked(sandbox, name) for name in ATTACKS))
        assert not any(gained), "\n".join(filter(None, gained))
        honest = BEFORE + "def attack(n, token): return 0"
        for _ in range(2):
            _, passed = await judged(sandbox, honest, made_problem())
            assert passed == [True, False] * (N // 2)


# ── asserts in a process of their own: how they end, and that programs do not know them ───────────


async def run(sandbox, code: str, tests: str, entry: str | None = None, **limits) -> Execution:
    bounds = Limits(**{"cpu_s": 1, "wall_s": 5, "memory_mb": 256, "output_kb": 64} | limits)
    given = Asserts(source=tests, entry_point=entry)
    (execution,) = await sandbox.run(Program(source=code), [given], bounds)
    return execution


ENDS_OF_ASSERTS = tables("asserts")


# `sandbox.conformance` has those that any sandbox must end so.
@pytest.mark.parametrize("name", ENDS_OF_ASSERTS)
async def test_ends(sandbox, name):
    code, tests, status, says = ENDS_OF_ASSERTS[name]
    execution = await run(
        sandbox, code, tests, entry="f", cpu_s=0.3, wall_s=1 if name == "sleep" else 15
    )
    assert (execution.status, execution.value) == (Status(status), None)
    assert says in execution.stderr_tail


async def test_tests_that_do_not_compile_are_no_verdict(any_sandbox):
    with pytest.raises(DataError, match="do not compile: SyntaxError"):
        await run(any_sandbox, "def f(): return 1", "assert f(")
    with pytest.raises(DataError, match="not valid Unicode"):
        await run(any_sandbox, "def f(): return 1", "assert f('\ud800')")
    assert (await run(any_sandbox, "def f(): return 1", "assert f()")).value is True


async def test_tests_are_nowhere_in_the_programs_memory(any_sandbox):
    """A program can find everything that was ever in the memory of the process that forks it."""
    code = SOURCES["a look for its tests"]
    tests = "# hidden_marker " * 500 + "\nassert f() == 0"
    given = [Asserts(source=tests)] * 3
    executions = await any_sandbox.run(Program(source=code), given, Limits(output_kb=64))
    assert [e.value for e in executions] == [True] * 3


CROSSING = Limits(cpu_s=2, wall_s=20, memory_mb=256, output_kb=64)


async def outcome(sandbox, code: str, entry: str, tests: str) -> str:
    given = Asserts(source=tests, entry_point=entry or None)
    try:
        (ended,) = await sandbox.run(Program(source=code), [given], CROSSING)
    except DataError:
        return "ungradable"
    if ended.value is True:
        return "passes"
    return f"fails: {ended.value if ended.status is Status.finished else ended.stderr_tail}"


async def test_crossing():
    text = (Path(__file__).parent / "crossing.txt").read_text()
    cases = re.findall(r"^=== (.+) \| (.+)\n([^\0]*?)^---(.*)\n([^\0]*?)(?=^===|\Z)", text, re.M)
    assert len(cases) == text.count("=== ")
    async with EmbeddedSandbox(workers=2, min_tier="rlimit") as sandbox:
        found = await asyncio.gather(
            *(outcome(sandbox, code, entry.strip(), tests) for _, _, code, entry, tests in cases)
        )
    expected = {name: wanted for name, wanted, *_ in cases}
    wrong = {
        name: got
        for (name, wanted), got in zip(expected.items(), found, strict=True)
        if not got.startswith(wanted.partition(":")[0]) or wanted.partition(": ")[2] not in got
    }
    assert wrong == {}
