"""The conformance suite of `Sandbox`: cases that every implementation must pass. `check` runs them."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coding_model_project.errors import SandboxError
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.languages import programs
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Input,
    Limits,
    Opaque,
    Plain,
    Program,
    Status,
    Stdin,
)

LIMITS = Limits(cpu_s=5.0, wall_s=15.0, memory_mb=256, output_kb=256)
_BRIEF = Limits(cpu_s=0.3, wall_s=5.0, memory_mb=256, output_kb=256)
_EMPTY = Stdin("")
_IMPATIENT = Limits(cpu_s=5.0, wall_s=0.5, memory_mb=256, output_kb=256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program, one input, and the expected execution."""

    name: str
    source: str
    given: Input = _EMPTY
    status: Status = Status.finished
    stdout: str | None = None
    """The expected output; None if any will do."""
    value: Plain | Opaque = None
    limits: Limits = LIMITS
    language: str = "python"
    isolation: bool = False
    """True to skip the case for a sandbox that only limits resources (tier rlimit)."""

    def problem(self, execution: Execution) -> str | None:
        """Return what is wrong with this execution; None if nothing."""
        if execution.status is not self.status:
            tail = execution.stderr_tail.strip()[-200:]
            return f"{execution.status} instead of {self.status} {tail}".strip()
        if self.stdout is not None and execution.stdout != self.stdout:
            return f"printed {execution.stdout[:100]!r} instead of {self.stdout!r}"
        if repr(execution.value) != repr(self.value):  # distinguishes 1 from True, and equates nan
            return f"returned {execution.value!r} instead of {self.value!r}"
        return None


def _script(name: str, source: str, stdin: str, stdout: str) -> Case:
    return Case(name=f"script: {name}", source=source, given=Stdin(stdin), stdout=stdout)


def _value(name: str, value: Plain) -> Case:
    """Return a case in which a value goes in as an argument and comes back unchanged."""
    given = Call(function="same", args=(value,))
    return Case(name=f"value: {name}", source="def same(x): return x", given=given, value=value)


def _call(name: str, source: str, value: Plain | Opaque, *args: Plain) -> Case:
    given = Call(function="f", args=args)
    return Case(name=f"call: {name}", source=source, given=given, value=value)


def _asserts(name: str, source: str, tests: str, value: Plain) -> Case:
    """Return a case with tests of `f`; the value is True or the line that failed."""
    given = Asserts(source=tests, entry_point="f")
    return Case(name=f"asserts: {name}", source=source, given=given, value=value)


def _ends(
    name: str, source: str, status: Status, limits: Limits = LIMITS, given: Input = _EMPTY
) -> Case:
    return Case(name=f"ends: {name}", source=source, status=status, limits=limits, given=given)


def _denied(name: str, source: str) -> Case:
    source = f"try:\n    {source}\n    print('allowed')\nexcept OSError:\n    print('denied')"
    return Case(name=f"denied: {name}", source=source, stdout="denied\n", isolation=True)


_LINES = "3\n1 2\n3\n"
_GUARDED = """
import sys
def main():
    print(sum(map(int, sys.stdin.read().split())))
if __name__ == "__main__":
    main()
    print("after")
"""
_UNTIL_END = """
total = 0
while True:
    try:
        total += sum(map(int, input().split()))
    except EOFError:
        break
print(total)
"""
_DEEP = """
import sys
sys.setrecursionlimit(10**6)
def depth(n): return n and 1 + depth(n - 1)
print(depth(20000))
"""
_THREAD = """
import threading
answers = []
thread = threading.Thread(target=lambda: answers.append(int(input())))
thread.start(); thread.join()
print(answers)
"""
_ASYNC = """
import asyncio
async def main():
    print(await asyncio.to_thread(input))
asyncio.run(main())
"""
_ADD = "def f(a, b): return a + b"
_RAISES = "def f(): raise ValueError('no')"

_ALIAS = "def f(x):\n    x.clear()\n    return []"
_ALIAS_FAILS = "line 2: assert f(x) == sorted(x)"
_EQUAL = "class E:\n    def __eq__(self, other): return True\ndef f(): return E()"
_PAIR = (
    "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\ndef f(p): return p.a + p.b"
)
_ASSERTS = Asserts(source="assert f() == 1", entry_point="f")
_CATCHING = Asserts(source="try: f()\nexcept BaseException: pass", entry_point="f")
_LEAVES = "import os\ndef f(): os._exit(0)"
_LOOPS = "def f():\n    while True: pass"

CASES: tuple[Case, ...] = (
    _script("input", "print(int(input()) + len(input().split()))", _LINES, "5\n"),
    _script("lines", "import sys\nfor line in sys.stdin: print(line, end='')", _LINES, _LINES),
    _script("buffer", "import sys\nprint(len(sys.stdin.buffer.read()))", "é\n", "3\n"),
    _script("open(0)", "print(open(0).read().split())", "a b", "['a', 'b']\n"),
    _script("os.read", "import os\nprint(os.read(0, 100))", "ab", "b'ab'\n"),
    _script("until the end", _UNTIL_END, _LINES, "9\n"),
    _script("after the guard", _GUARDED, _LINES, "9\nafter\n"),
    _script("exit()", "print(1)\nexit()\nprint(2)", "", "1\n"),
    _script("SystemExit", "print(1)\nraise SystemExit", "", "1\n"),
    _script("sys.exit(0)", "import sys\nprint(1)\nsys.exit(0)", "", "1\n"),
    _script("raw output", "import sys\nsys.stdout.buffer.write(b'\\xc3\\xa9')", "", "é"),
    _script("closed", "import sys\nprint(1)\nsys.stdout.close()", "", "1\n"),
    _script("reopened", "out = open(1, 'w')\nout.write('x')", "", "x"),
    _script("silenced", "import os, sys\nsys.stderr = open(os.devnull, 'w')\nprint(1)", "", "1\n"),
    _script("asyncio", _ASYNC, "7", "7\n"),
    _script("unflushed", "import sys\nsys.stdout.write('x')", "", "x"),
    _script("prompt", "print(input('n? '))", "1", "n? 1\n"),
    _script("at exit", "import atexit\natexit.register(print, 2)\nprint(1)", "", "1\n2\n"),
    _script("deep recursion", _DEEP, "", "20000\n"),
    _script("thread", _THREAD, "7", "[7]\n"),
    _script("huge int", "print(len(str(10 ** 9999)))", "", "10000\n"),
    _script("unicode", "print('ż' + input())", "√\n", "ż√\n"),
    _value("list", [1, [2.5, "x"], []]),
    _value("dict", {"a": 1, 2: [None], (1, 2): {}}),
    _value("tuple", (1, ("a",), ())),
    _value("set", {(1, 2)}),
    _value("frozenset", frozenset({1})),
    _value("none", None),
    _value("bool", [True, False, 1, 0]),
    _value("big int", [10**50, -(10**4000), 2**53, 2**63]),
    _value("floats", [math.nan, math.inf, -math.inf, -0.0, 0.1, 1e300]),
    _value("bytes", b"\x00\xff"),
    _value("complex", 1 - 2j),
    _value("text", "ż√\n\x00"),
    _call("free function", _ADD, 3, 1, 2),
    _call("method of Solution", "class Solution:\n    def f(self, a, b): return a + b", 3, 1, 2),
    _call("free function first", f"class Solution:\n    def f(self): pass\n{_ADD}", 3, 1, 2),
    _call("no answer but None", "def f(): print('x')", None),
    _call("guard is not run", f"{_ADD}\nif __name__ == '__main__': 1 / 0", 3, 1, 2),
    _call("not plain", "class A: pass\ndef f(): return A()", Opaque("A")),
    _asserts("pass", _ADD, "assert f(1, 2) == 3", True),
    _asserts("check", _ADD, "def check(candidate):\n    assert candidate(1, 2) == 3", True),
    _asserts("fail", _ADD, "x = 4\nassert f(1, 2) == x", "line 2: assert f(1, 2) == x"),
    _asserts("in place", "def f(x): x.sort()", "x = [2, 1]\nf(x)\nassert x == [1, 2]", True),
    _asserts("alias", _ALIAS, "x = [2, 1]\nassert f(x) == sorted(x)", _ALIAS_FAILS),
    _asserts("equal to all", _EQUAL, "assert f() == 1", "line 1: assert f() == 1"),
    _asserts("objects", _PAIR, "assert f(Pair(1, 2)) == 3", True),
    _asserts("exception", _RAISES, "try: f()\nexcept ValueError: pass\nelse: 1 / 0", True),
    _ends("exit before the asserts", "import os\nos._exit(0)", Status.raised, given=_ASSERTS),
    _ends("uncaught exception in asserts", _RAISES, Status.raised, given=_ASSERTS),
    _ends("exit that asserts catch", _LEAVES, Status.raised, given=_CATCHING),
    _ends("infinite loop in asserts", _LOOPS, Status.cpu_timeout, _BRIEF, given=_ASSERTS),
    _ends("syntax error", "print('ran')\ndef f(:", Status.syntax_error),
    _ends("null byte", "print(1)\x00", Status.syntax_error),
    _ends("surrogate", "print('\ud800')", Status.syntax_error),
    _ends("uncaught exception", "1 / 0", Status.raised),
    _ends("SyntaxError at run time", "compile('(', '', 'eval')", Status.raised),
    _ends("exit code", "import sys\nsys.exit(3)", Status.raised),
    _ends("exit with a message", "import sys\nsys.exit('bad')", Status.raised),
    _ends("runaway recursion", "def f(): f()\nf()", Status.raised),
    _ends("uncaught exception in a call", _RAISES, Status.raised, given=Call(function="f")),
    _ends("no such function", "x = 1", Status.raised, given=Call(function="f")),
    _ends("a call that leaves without an answer", _LEAVES, Status.raised, given=Call(function="f")),
    _ends("infinite loop", "while True: pass", Status.cpu_timeout, _BRIEF),
    _ends("sleep", "import time\ntime.sleep(60)", Status.wall_timeout, _IMPATIENT),
    _ends("memory bomb", "x = [b'x' * 10**7 for _ in range(10**4)]", Status.memory_limit),
    _ends("output flood", "while True: print('x' * 1000)", Status.output_limit),
    _ends("signal", "import ctypes\nctypes.string_at(0)", Status.signalled),
    _denied("network", "import socket; socket.create_connection(('127.0.0.1', 9), 0.2)"),
    _denied("sockets", "import socket; socket.socket(socket.AF_UNIX)"),
    _denied("fork", "import os; os.fork() or os._exit(0)"),
    _denied("exec", "import os; os.execv('/bin/true', ['true'])"),
    _denied("host's files", "open('/etc/passwd').read()"),
    _denied("other processes", "import os; os.kill(os.getppid() or 2, 0)"),
)


_COMPILED = frozenset(("c", "cpp", "java", "go", "rust"))


def _cases(language: str, programs: Mapping[str, str]) -> list[Case]:
    unit = "compile" if language in _COMPILED else "syntax"
    cases = [
        Case(name="echo", source=programs["echo"], given=Stdin("a b\nc\n"), stdout="a b\n"),
        Case(name="exit code", source=programs["fail"], status=Status.raised),
        Case(name=f"{unit} error", source=programs["broken"], status=Status(f"{unit}_error")),
        Case(
            name="infinite loop",
            source=programs["loop"],
            status=Status.cpu_timeout,
            limits=_BRIEF,
        ),
    ]
    return [replace(case, name=f"{language}: {case.name}", language=language) for case in cases]


LANGUAGES = {name: _cases(name, own) for name, own in programs().items() if "echo" in own}
"""Further cases, by language, for a sandbox that also runs it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that a sandbox fails, and how."""

    case: str
    problem: str

    def __str__(self) -> str:
        return f"{self.case}: {self.problem}"


async def check(sandbox: Sandbox, languages: Sequence[str] = ()) -> list[Finding]:
    """Run every case and scenario on a started sandbox; return those that it fails, in order.

    An exception other than SandboxError is a finding too, so that it has the name of its case.

    Args:
        languages: those of `LANGUAGES` that it runs besides Python.
    """
    isolates = "/rlimit/" not in sandbox.identity
    cases = [case for case in CASES if isolates or not case.isolation]
    cases += [case for language in languages for case in LANGUAGES[language]]
    scenarios = [*_SCENARIOS, *([_files_stay_unwritten] if isolates else [])]
    found = await asyncio.gather(
        *(_finding(case.name, _problem_of(sandbox, case)) for case in cases),
        *(_finding(_name_of(scenario), scenario(sandbox)) for scenario in scenarios),
    )
    return [finding for finding in found if finding is not None]


async def _finding(name: str, checked: Awaitable[str | None]) -> Finding | None:
    try:
        problem = await checked
    except SandboxError:
        raise
    except Exception as error:  # noqa: BLE001 - any fault of its code is a finding
        problem = f"raised {type(error).__name__}: {error}"
    return Finding(name, problem) if problem else None


async def _problem_of(sandbox: Sandbox, case: Case) -> str | None:
    program = Program(source=case.source, language=case.language)
    executions = await sandbox.run(program, [case.given], case.limits)
    if len(executions) != 1:
        return f"{len(executions)} executions of 1 input"
    return case.problem(executions[0])


# ── scenarios with several inputs, or with checks on the host ─────────────────────────────────────

Scenario = Callable[[Sandbox], Awaitable[str | None]]


def _name_of(scenario: Scenario) -> str:
    return getattr(scenario, "__name__", "scenario").strip("_").replace("_", " ")


async def _each_input_has_a_fresh_process(sandbox: Sandbox) -> str | None:
    source = """
import math
seen = getattr(math, "seen", 0)
math.seen = seen + 1
def f(): return seen
"""
    calls = [Call(function="f")] * 3
    values = [e.value for e in await sandbox.run(Program(source=source), calls, LIMITS)]
    return None if values == [0, 0, 0] else f"values {values} instead of zeros"


async def _asserts_that_continue_share_the_state(sandbox: Sandbox) -> str | None:
    program = Program(source="seen = []\ndef f():\n    seen.append(1)\n    return len(seen)")
    tests = [
        Asserts(source=f"assert f() == {expected}", entry_point="f", continues=continues)
        for expected, continues in ((1, False), (2, True), (5, True), (4, True), (1, False))
    ]
    values = [e.value for e in await sandbox.run(program, tests, LIMITS)]
    return _unlike(values, [True, True, "line 1: assert f() == 5", True, True])


async def _stop_when_ends_the_run(sandbox: Sandbox) -> str | None:
    seen: list[tuple[int, str]] = []

    def stop(index: int, execution: Execution) -> bool:
        seen.append((index, execution.stdout))
        return execution.stdout == "b"

    program = Program(source="print(input(), end='')")
    inputs = [Stdin(text) for text in "abcd"]
    executions = await sandbox.run(program, inputs, LIMITS, stop_when=stop)
    if len(executions) != 2 or seen != [(0, "a"), (1, "b")]:
        return f"{len(executions)} executions, stop_when was called with {seen}"
    return None


async def _no_inputs_give_no_executions(sandbox: Sandbox) -> str | None:
    executions = await sandbox.run(Program(source="1 / 0"), [], LIMITS)
    return f"{len(executions)} executions" if executions else None


async def _a_failed_input_does_not_end_the_rest(sandbox: Sandbox) -> str | None:
    program = Program(source="print(1 // int(input()))")
    executions = await sandbox.run(program, [Stdin(n) for n in "101"], LIMITS)
    return _unlike([e.status for e in executions], ["finished", "raised", "finished"])


async def _runs_at_once_do_not_mix(sandbox: Sandbox) -> str | None:
    async def one(n: int) -> list[str]:
        inputs = [Stdin(str(i)) for i in range(3)]
        program = Program(source=f"print({n}, input())")
        return [e.stdout for e in await sandbox.run(program, inputs, LIMITS)]

    answers = await asyncio.gather(*(one(n) for n in range(12)))
    return _unlike(answers, [[f"{n} {i}\n" for i in range(3)] for n in range(12)])


async def _costs_are_measured(sandbox: Sandbox) -> str | None:
    source = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
    (execution,) = await sandbox.run(Program(source=source), [Stdin("")], LIMITS)
    if not 0.09 <= execution.cpu_s <= 0.5 or execution.wall_s < 0.09:
        return f"{execution.cpu_s:.3f} s CPU and {execution.wall_s:.3f} s wall for 0.1 s of work"
    return None


async def _files_stay_unwritten(sandbox: Sandbox) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        victim = Path(folder) / "victim"
        victim.write_text("before")
        source = f"""
import os
for attempt in (
    lambda: open({str(victim)!r}, "w").write("after"),
    lambda: open({folder!r} + "/new", "w").close(),
    lambda: os.chmod({str(victim)!r}, 0),
    lambda: os.remove({str(victim)!r}),
):
    try: attempt()
    except OSError: pass
"""
        await sandbox.run(Program(source=source), [Stdin("")], LIMITS)
        mode = victim.stat().st_mode & 0o777 if victim.exists() else None
        names = sorted(path.name for path in Path(folder).iterdir())
        if names != ["victim"] or not mode or victim.read_text() != "before":
            return f"files {names}, mode {mode}"
    return None


def _unlike(found: Sequence[object], expected: Sequence[object]) -> str | None:
    return None if list(found) == list(expected) else f"{found} instead of {expected}"


_SCENARIOS: tuple[Scenario, ...] = (
    _each_input_has_a_fresh_process,
    _asserts_that_continue_share_the_state,
    _stop_when_ends_the_run,
    _no_inputs_give_no_executions,
    _a_failed_input_does_not_end_the_rest,
    _runs_at_once_do_not_mix,
    _costs_are_measured,
)
