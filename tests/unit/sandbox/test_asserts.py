"""Asserts in a process of their own: what honest programs need crosses, what forges does not."""

from __future__ import annotations

import pytest

from coding_model_project.errors import DataError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.types import (
    Asserts,
    ErrorType,
    Execution,
    Limits,
    Problem,
    Program,
    Status,
    Stdin,
    Test,
)

pytestmark = pytest.mark.sandbox

LIMITS = Limits(cpu_s=1, wall_s=5, memory_mb=256, output_kb=64)


async def run(sandbox, code: str, tests: str, entry: str | None = None, **limits) -> Execution:
    bounds = Limits(**{"cpu_s": 1, "wall_s": 5, "memory_mb": 256, "output_kb": 64} | limits)
    given = Asserts(source=tests, entry_point=entry)
    (execution,) = await sandbox.run(Program(source=code), [given], bounds)
    return execution


PASSES = {
    "names": ("def f(x): return x + 1\nlimit = 3", "assert f(limit) == 4"),
    "check": ("def f(x): return -x", "def check(candidate):\n    assert candidate(1) == -1"),
    "candidate": ("def f(x): return -x", "assert candidate(2) == -2"),
    "method": ("class Solution:\n    def f(self, x): return x", "assert candidate(2) == 2"),
    "built-in name as entry point": ("def f(): return 1\ndef max(a): return 9", "assert f() == 1"),
    "module imported by the program": ("import math\ndef f(): return 3.5", "math.floor(f()) == 3"),
    "changed in place": (
        "def f(xs, d):\n    xs[0].append(2); xs.append(3); d.clear()",
        "inner = [1]\nxs = [inner]\nd = {1: 2}\nf(xs, d=d)\nassert xs == [[1, 2], 3] and d == {}",
    ),
    "tuples changed in place": (
        "def f(xs):\n    xs[0] = (5, xs[0][1])\n    xs[0][1].append(2)\n    xs[1]['a'].add(9)",
        "inner = []\nxs = [(1, inner), {'a': set()}]\nf(xs)\n"
        "assert xs == [(5, [2]), {'a': {9}}] and inner == [2]",
    ),
    "nested lists keep their identity": (
        "def f(xs):\n    xs[0].append(2)",
        "inner = [1]\nf([inner])\nassert inner == [1, 2]",
    ),
    "objects": (
        "class P:\n    def __init__(self, a): self.a = a\n    def up(self): self.a += 1\n"
        "    def __str__(self): return f'P{self.a}'\ndef f(p): return p.a",
        "p = P(1)\np.up()\np.a = p.a + 5\nassert f(p) == 7 and str(p) == 'P7' and f(P(2)) == 2",
    ),
    "iterables": ("def f(n): return map(str, range(n))", "assert [*f(2)] == ['0', '1']"),
    "items": (
        "from collections import deque\ndef f(): return deque([1, 2])",
        "d = f()\nd[0] = 5\nassert len(d) == 2 and list(d) == [5, 2]",
    ),
    "functions": ("def f(n): return lambda m: n * m", "assert f(2)(3) == 6"),
    "types": ("def f(x, t): return isinstance(x, t)", "assert f(1, int) and not f(1, str)"),
    "exceptions": (
        "def f():\n    class Mine(KeyError): pass\n    raise Mine('x')",
        "try:\n    f()\n    assert False\nexcept KeyError:\n    pass",
    ),
    "texts of exceptions": (
        "class Mine(ValueError):\n    def __str__(self): return 'mine'\n"
        "def f(n):\n"
        "    if n == 0: raise ValueError('no ' + 'x' * 600)\n"
        "    if n == 1: raise KeyError(1, 'b')\n"
        "    if n == 2: raise Mine([1])\n"
        "    if n == 3: open('/missing')\n"
        "    b'\\xff'.decode()",
        "import re\n"
        "def raised(n):\n    try: f(n)\n    except Exception as error: return error\n"
        "assert re.fullmatch('no x{600}', str(raised(0)))\n"
        "assert raised(0).args == ('no ' + 'x' * 600,) and repr(raised(0))[:13] == \"ValueError('n\"\n"
        "assert str(raised(1)) == \"(1, 'b')\" and raised(1).args == (1, 'b')\n"
        "assert str(raised(2)) == 'mine' and raised(2).args == ([1],)\n"
        "assert isinstance(raised(3), FileNotFoundError) and raised(3).errno == 2\n"
        "assert raised(4).start == 0 and str(raised(4)).startswith(\"'utf-8' codec can't\")",
    ),
    "plain values": (
        "def f(x): return x",
        "for x in (None, True, 10**50, 1.5, 'é', b'x', 1j, (1,), {1}, frozenset({2}), {(1,): [{}]}):\n"
        "    assert f(x) == x and type(f(x)) is type(x)",
    ),
    "printing": ("def f(): print('x')", "print('y')\nf()"),
}


@pytest.mark.parametrize("name", PASSES)
async def test_passes(any_sandbox, name):
    execution = await run(any_sandbox, *PASSES[name], entry="f")
    assert (execution.status, execution.value) == (Status.finished, True), execution


SAME = "class S:\n    def __eq__(self, o): return True\n    __hash__ = None\n"
FAILS = {
    "wrong": ("def f(): return 1", "x = 2\nassert f() == x", "line 2: assert f() == x"),
    "equal to everything": (SAME + "def f(): return S()", "assert f() == 1", "line 1"),
    "inside a list": (SAME + "def f(): return [S()]", "assert f() == [1]", "line 1"),
    "handles": (SAME + "def f(): return S()", "a = f()\nassert f() == a", "line 2"),
    "alias": (
        "def f(x):\n    x.clear()\n    return []",
        "x = [2, 1]\nassert f(x) == sorted(x)",
        "line 2",
    ),
    "built-ins": (
        "def f(): return 3\ndef len(x): return 2\ndef all(x): return True",
        "assert all([len([f()]) == 2])",
        "line 1",
    ),
    "modules": (
        "import math\nmath.isclose = lambda *a: True\ndef f(): return 0",
        "assert math.isclose(f(), 1)",
        "line 1",
    ),
    "check of its own": (
        "def check(c): pass\ndef f(): return 0",
        "def check(candidate):\n    assert candidate() == 1",
        "line 2",
    ),
}


@pytest.mark.parametrize("name", FAILS)
async def test_fails(any_sandbox, name):
    code, tests, line = FAILS[name]
    execution = await run(any_sandbox, code, tests, entry="f")
    assert execution.status is Status.finished
    assert str(execution.value).startswith(line), execution


ENDS = {
    "raises": ("def f(): return 1 / 0", "f()", Status.raised, "ZeroDivisionError"),
    "raises at import": ("1 / 0", "assert True", Status.raised, "ZeroDivisionError"),
    "missing": ("def g(): pass", "assert True", Status.raised, "defines no f"),
    "exit": ("import os\nos._exit(0)", "assert True", Status.raised, "no answer"),
    "exit in a call": ("def f(): raise SystemExit(0)", "f()", Status.raised, "SystemExit: 0"),
    "exit that the tests catch": (
        "import os\ndef f(): os._exit(0)",
        "try:\n    f()\nexcept BaseException:\n    pass",
        Status.raised,
        "no answer",
    ),
    "stop iteration": (
        "def f(): raise StopIteration",
        "assert all(map(lambda _: f() == 1, [1]))",
        Status.raised,
        "StopIteration",
    ),
    "exception of its own": (
        "class Mine(Exception): pass\ndef f(): raise Mine('x')",
        "f()",
        Status.raised,
        "Mine: x",
    ),
    "assertion of its own": ("def f(): assert 0", "f()", Status.raised, "line 1"),
    "syntax": ("def f(:", "f()", Status.syntax_error, "invalid syntax"),
    "loop": ("def f():\n    while True: pass", "f()", Status.cpu_timeout, ""),
    "loop of the tests": ("def f(): return 1", "while f(): pass", Status.cpu_timeout, ""),
    "sleep": ("import time\ndef f(): time.sleep(9)", "f()", Status.wall_timeout, ""),
    "memory": ("def f(): return [0] * (1 << 30)", "f()", Status.memory_limit, "MemoryError"),
    "much printed": ("def f(): print('x' * 100000)", "f()", Status.output_limit, ""),
    "much answered": ("def f(): return 'x' * 100000", "f()", Status.output_limit, ""),
}


@pytest.mark.parametrize("name", ENDS)
async def test_ends(sandbox, name):
    code, tests, status, says = ENDS[name]
    execution = await run(
        sandbox, code, tests, entry="f", cpu_s=0.3, wall_s=1 if name == "sleep" else 15
    )
    assert (execution.status, execution.value) == (status, None)
    assert says in execution.stderr_tail


async def test_tests_that_do_not_compile_are_no_verdict(any_sandbox):
    with pytest.raises(DataError, match="do not compile: SyntaxError"):
        await run(any_sandbox, "def f(): return 1", "assert f(")
    with pytest.raises(DataError, match="not valid Unicode"):
        await run(any_sandbox, "def f(): return 1", "assert f('\ud800')")
    assert (await run(any_sandbox, "def f(): return 1", "assert f()")).value is True


async def test_inputs_of_one_program(sandbox):
    """Each in a fresh process, and beside inputs of other kinds."""
    code = "seen = []\ndef f():\n    seen.append(1)\n    return len(seen)\nprint('ran')"
    given = [Asserts(source="assert f() == 1"), Stdin(""), Asserts(source="assert f() == 1")]
    executions = await sandbox.run(Program(source=code), given, LIMITS)
    assert [e.value for e in executions] == [True, None, True]
    assert [e.stdout for e in executions] == ["ran\n"] * 3


async def test_tests_are_nowhere_in_the_programs_memory(any_sandbox):
    """A program can find everything that was ever in the memory of the process that forks it."""
    code = """
import ctypes, gc, re, sys
def f():
    things = [*gc.get_objects(), *sys.modules, *(n for m in [*sys.modules.values()] for n in vars(m))]
    pages = {id(thing) >> 12 for thing in things}
    needle = re.compile(b"hidden[_]marker")  # which is not itself to be found
    return sum(len(needle.findall(ctypes.string_at(page << 12, 4096))) for page in pages)
"""
    tests = "# hidden_marker " * 500 + "\nassert f() == 0"
    given = [Asserts(source=tests)] * 3
    executions = await any_sandbox.run(Program(source=code), given, Limits(output_kb=64))
    assert [e.value for e in executions] == [True] * 3


async def test_grading(any_sandbox):
    tests = (Test(input=Asserts(source="assert f(1) == 2", entry_point="f")),)
    problem = Problem(id="fake/a", split="test", statement="?", tests=tests, limits=LIMITS)
    grader = ExecutionGrader(any_sandbox, stop_early=True)
    right = await grader.grade_code(problem, "def f(x): return x + 1")
    assert right.passed
    assert right.comparison == "asserts"
    wrong = await grader.grade_code(problem, "def f(x): return x")
    assert wrong.error is ErrorType.wrong_answer
    assert wrong.results[0].detail == "line 1: assert f(1) == 2"
    raised = await grader.grade_code(problem, "def f(x): return y")
    assert raised.error is ErrorType.runtime_error
    assert "NameError: name 'y' is not defined" in raised.results[0].detail
