"""Asserts of one program that are tried together give what each would give on its own."""

import pytest

from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.embedded.fast_path import together
from coding_model_project.types import Asserts, Execution, Limits, Program, Status, Stdin


def asserts(*sources, entry_point="f"):
    return [Asserts(source=source, entry_point=entry_point) for source in sources]


def test_plain_asserts_become_one_source():
    joined = together.joined(
        asserts("assert f(1) == 1", "import math\n\nassert f(2) == 2\n", "assert f")
    )
    assert joined.tests.source == "assert f(1) == 1\nimport math\n\nassert f(2) == 2\nassert f\n"
    assert joined.starts == (1, 2, 5)


@pytest.mark.parametrize(
    "inputs",
    [
        asserts("assert f(1) == 1"),
        asserts("assert f(1)", "x = 1\nassert f(x)"),
        asserts("assert f(1)", "def check(c):\n    assert c(1)"),
        asserts("assert f(1)", "from __future__ import annotations\nassert f(2)"),
        asserts("assert (y := f(1))", "assert f(2)"),
        asserts("assert f(1)", "assert f(2"),
        asserts("assert f(1)\r\n", "assert f(2)"),
        [*asserts("assert f(1)"), *asserts("assert g(1)", entry_point="g")],
        [*asserts("assert f(1)"), Stdin(text="")],
    ],
)
def test_what_could_leave_something_to_the_next_stays_apart(inputs):
    assert together.joined(inputs) is None


def execution(value, status=Status.finished):
    return Execution(status=status, value=value, cpu_s=0.3)


def test_only_passes_and_a_failure_of_the_first_are_believed():
    joined = together.joined(asserts("assert f(1)", "assert f(2)", "assert f(3)"))
    every = together.believed(joined, execution(True))
    assert [one.value for one in every] == [True] * 3
    assert sum(one.cpu_s for one in every) == pytest.approx(0.3)
    assert [e.value for e in together.believed(joined, execution("line 1: assert f(1)"))] == [
        "line 1: assert f(1)"
    ]
    assert [e.value for e in together.believed(joined, execution("line 3: assert f(3)"))] == [
        True
    ] * 2
    assert together.believed(joined, execution("the tests ended without a word")) == []
    assert together.believed(joined, execution(True, Status.wall_timeout)) == []


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("source", "ends"),
    [
        ("def f(x): return x", "ok ok ok"),
        ("def f(x): return 1", "ok wrong wrong"),
        # Right in a process of its own each time.
        ("n = []\ndef f(x): n.append(x); return x if len(n) == 1 else 0", "ok ok ok"),
        ("def f(x): return 1 // (x - 2) and x", "ok raised ok"),
        ("def f(x):\n  while x == 2: pass\n  return x", "ok cpu_timeout ok"),
        ("import os\ndef f(x): return x if x == 1 else os._exit(0)", "ok raised raised"),
        ("def f(x: return x", "syntax_error syntax_error syntax_error"),
    ],
)
async def test_as_each_on_its_own(source, ends):
    inputs = asserts(*(f"assert f({x}) == {x}" for x in (1, 2, 3)))
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        found = await sandbox.run(Program(source=source), inputs, Limits(cpu_s=1, wall_s=5))
    assert " ".join(map(ended, found)) == ends


@pytest.mark.sandbox
@pytest.mark.parametrize(("shared", "ends"), [(False, "ok wrong"), (True, "ok ok")])
async def test_by_default_no_test_sees_what_another_left(shared, ends):
    counts = Program(source="seen = []\ndef f(): seen.append(1); return len(seen)")
    inputs = asserts("assert f() == 1", "assert f() == 2")
    async with EmbeddedSandbox(
        workers=1, **({"share_processes": True} if shared else {})
    ) as sandbox:
        found = await sandbox.run(counts, inputs, Limits(cpu_s=1, wall_s=5))
        assert sandbox.identity.endswith("/shared") is shared
    assert " ".join(map(ended, found)) == ends


def ended(execution):
    if execution.status is not Status.finished:
        return str(execution.status)
    return "ok" if execution.value is True else "wrong"
