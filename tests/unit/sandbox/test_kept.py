"""Asserts that continue one another run in the same processes, each within its own limits."""

import pytest

from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Asserts, Limits, Program, Status

LIMITS = Limits(cpu_s=1, wall_s=20)

COUNTS = "seen = []\ndef f(): seen.append(1); print(len(seen)); return len(seen)"


def asserts(*sources, continues=True):
    return [
        Asserts(source=source, entry_point="f", continues=continues and number > 0)
        for number, source in enumerate(sources)
    ]


async def ends_of(source, inputs, limits=LIMITS):
    async with EmbeddedSandbox(workers=1) as sandbox:
        found = await sandbox.run(Program(source=source), inputs, limits)
    return [one.value if one.status is Status.finished else str(one.status) for one in found], found


@pytest.mark.sandbox
async def test_asserts_that_continue_see_what_those_before_them_left():
    ends, found = await ends_of(
        COUNTS, asserts("assert f() == 1", "assert f() == 2", "n = f()\nassert n == 3")
    )
    assert ends == [True] * 3
    assert [one.stdout for one in found] == ["1\n", "2\n", "3\n"]
    ends, _ = await ends_of(COUNTS, asserts("n = f()", "assert n == 1"))
    assert ends == [True, True]  # names of the tests, too


@pytest.mark.sandbox
async def test_a_program_may_have_a_name_of_the_tests():
    ends, _ = await ends_of(
        "candidate = 5\ncheck = 1\ndef f(x): return x",
        asserts(
            "assert candidate(1) == 1",
            "def check(c):\n    assert c(2) == 2",
            "def check(c):\n    assert c(2) == 1",
        ),
    )
    assert ends == [True, True, "line 2: assert c(2) == 1"]


@pytest.mark.sandbox
async def test_a_global_name_of_the_program_is_as_it_is_now():
    source = "n = 0\ndef f():\n    global n\n    n += 1"
    ends, _ = await ends_of(
        source, asserts("f()\nassert n == 0", "f()\nassert n == 1", "n = 2\nf()", "assert n == 2")
    )
    assert ends == [True] * 4


@pytest.mark.sandbox
async def test_a_failure_does_not_end_those_that_continue():
    ends, _ = await ends_of(
        COUNTS, asserts("assert f() == 2", "assert f() == 2", "f(1)", "assert f() == 3")
    )
    assert ends == ["line 1: assert f() == 2", True, "raised", True]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("source", "middle"),
    [
        ("import os\n", "os._exit(0)"),
        ("", "x = sum(iter(int, 1))"),
        ("", "return 'a' * (2 << 20)"),
    ],
)
async def test_what_ends_the_processes_leaves_new_ones_to_the_next(source, middle):
    source += (
        f"seen = []\ndef f(x):\n    seen.append(x)\n    if x == 2: {middle}\n    return len(seen)"
    )
    sources = ("assert f(1) == 1", "f(2)", "assert f(3) == 1", "assert f(4) == 2")
    ends, _ = await ends_of(source, asserts(*sources))
    assert ends[1] in ("raised", "cpu_timeout", "output_limit")
    assert [ends[0], *ends[2:]] == [True] * 3


@pytest.mark.sandbox
async def test_each_has_its_own_limits():
    source = (
        "import time\n"
        "def f():\n"
        "    end = time.process_time() + 0.5\n"
        "    while time.process_time() < end: pass\n"
        "    print('a' * 600_000)\n"
    )
    limits = Limits(cpu_s=2, wall_s=20, output_kb=1024)
    ends, found = await ends_of(source, asserts(*["f()"] * 6), limits)
    assert ends == [True] * 6
    assert sum(one.cpu_s for one in found) > limits.cpu_s


@pytest.mark.sandbox
async def test_tests_that_do_not_continue_see_nothing():
    ends, _ = await ends_of(COUNTS, asserts("assert f() == 1", "assert f() == 1", continues=False))
    assert ends == [True, True]
