"""The cases of `conformance`: one program, one input, and the expected execution."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Input,
    Limits,
    Opaque,
    Plain,
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
    _ends(
        "a call that leaves without an answer",
        "import os\ndef f(): os._exit(0)",
        Status.raised,
        given=Call(function="f"),
    ),
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


def _cases(language: str, unit: str, echo: str, fail: str, broken: str, loop: str) -> list[Case]:
    """Return the cases of a language.

    Args:
        unit: the step that rejects `broken`: "compile" or "syntax".
        echo: a program that prints its first line of input.
        fail: a program that ends with exit code 3.
        loop: a program that never ends and prints nothing.
    """
    broken_status = Status.compile_error if unit == "compile" else Status.syntax_error
    cases = [
        Case(name="echo", source=echo, given=Stdin("a b\nc\n"), stdout="a b\n"),
        Case(name="exit code", source=fail, status=Status.raised),
        Case(name=f"{unit} error", source=broken, status=broken_status),
        Case(name="infinite loop", source=loop, status=Status.cpu_timeout, limits=_BRIEF),
    ]
    return [replace(case, name=f"{language}: {case.name}", language=language) for case in cases]


LANGUAGES = {
    "c": _cases(
        "c",
        "compile",
        echo="#include <stdio.h>\nint main(void) { char s[9]; fputs(fgets(s, 9, stdin), stdout); }",
        fail="int main(void) { return 3; }",
        broken="int main(void) { return }",
        loop="int main(void) { for (volatile int n = 0;; n++) ; }",
    ),
    "cpp": _cases(
        "cpp",
        "compile",
        echo="#include <bits/stdc++.h>\n"
        "int main() { std::string s; getline(std::cin, s); std::cout << s << std::endl; }",
        fail="int main() { return 3; }",
        broken="int main() { return }",
        loop="int main() { volatile int n = 0; for (;;) n++; }",
    ),
    "javascript": _cases(
        "javascript",
        "syntax",
        echo="console.log(require('fs').readFileSync(0, 'utf8').split('\\n')[0])",
        fail="process.exit(3)",
        broken="function f( {",
        loop="for (;;) {}",
    ),
    "java": _cases(
        "java",
        "compile",
        echo="import java.util.*;\npublic class Main { public static void main(String[] args) { "
        "System.out.println(new Scanner(System.in).nextLine()); } }",
        fail="class Main { public static void main(String[] args) { System.exit(3); } }",
        broken="class Main { void f( { }",
        loop="class Main { public static void main(String[] args) { for (;;) ; } }",
    ),
    "go": _cases(
        "go",
        "compile",
        echo='package main\nimport ("bufio"; "fmt"; "os")\n'
        "func main() { s, _ := bufio.NewReader(os.Stdin).ReadString('\\n'); fmt.Print(s) }",
        fail='package main\nimport "os"\nfunc main() { os.Exit(3) }',
        broken="package main\nfunc main() { return 1 }",
        loop="package main\nfunc main() { for {} }",
    ),
    "rust": _cases(
        "rust",
        "compile",
        echo="fn main() { let mut s = String::new(); std::io::stdin().read_line(&mut s).unwrap(); "
        'print!("{s}"); }',
        fail="fn main() { std::process::exit(3) }",
        broken="fn main() { return 1 }",
        loop="fn main() { loop {} }",
    ),
    "perl": _cases(
        "perl",
        "syntax",
        echo="print scalar <STDIN>",
        fail="exit 3",
        broken="if (1) {",
        loop="1 while 1",
    ),
    "bash": _cases(
        "bash",
        "syntax",
        echo='IFS= read -r line\necho "$line"',
        fail="exit 3",
        broken="if true; then",
        loop="while :; do :; done",
    ),
}
"""Further cases, by language, for a sandbox that also runs it."""
