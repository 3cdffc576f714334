"""Processes that answer several inputs give what each input's own process would give."""
# ruff: noqa: E501 - a program is best read on one line

import pytest

from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Asserts, Call, Limits, Program, Status, Stdin

LIMITS = Limits(cpu_s=1, wall_s=20)


def call(*args, function="f", apart=False):
    return Call(function=function, args=args, apart=apart)


PROGRAMS = {
    "right": "def f(x): return x",
    "wrong": "def f(x): return 1",
    "prints": "def f(x): print('got', x); return x",
    "keeps what it saw": "n = []\ndef f(x): n.append(x); return x if len(n) == 1 else 0",
    "raises": "def f(x): return 1 // (x - 2) and x",
    "hangs": "def f(x):\n    while x == 2: pass\n    return x",
    "leaves": "import os\ndef f(x): return x if x == 1 else os._exit(0)",
    "exits": "def f(x):\n    if x == 2: raise SystemExit(3)\n    return x",
    "takes memory": "def f(x): return x if x != 2 else len(bytearray(1 << 40))",
    "answers much": "def f(x): return x if x != 2 else 'a' * (2 << 20)",
    "recurses": "def f(x): return x if x != 2 else f(x)",
    "gives an object": "class P: pass\ndef f(x): return x if x != 2 else P()",
    "gives a subclass": "from collections import Counter\ndef f(x): return Counter([x])",
    "has no such function": "def g(x): return x",
    "does not start": "import nothing_of_this_name\ndef f(x): return x",
    "is a class": "class Solution:\n    def f(self, x):\n        self.x = x\n        return self.x",
    "keeps in itself": "class Solution:\n    n = 0\n    def f(self, x): self.n += 1; return self.n",
    # 200 MB a call: in 512 MB there is room for two calls' garbage, not for three calls'.
    "leaves much garbage": (
        "class N:\n    def __init__(self): self.me = self; self.d = [0] * (25 << 20)\n"
        "def f(x):\n    try: N()\n    except MemoryError: return -1\n    return x"
    ),
    "closes its output": "import sys\ndef f(x): sys.stdout.close(); return x",
    "prints late": "def f(x):\n    try: yield x\n    finally: print('late', x)",
    "raises at length": "def f(x): raise ValueError('\\ud800' + 'a' * 300000)",
    "does not compile": "def f(x: return x",
    "answers in its own way": "import os\nos.write(3, (2).to_bytes(8, 'little') + b'=1')\ndef f(x): return x",
    "raises a key": "def f(x): return {1: 'a'}[x]",
    "warns": "import warnings\ndef f(x): warnings.warn('no'); return x",
    "catches late": "def g(n):\n    try: return g(n + 1)\n    except RecursionError: return 0\ndef f(x): return g(x)",
    "gives what it got": "def f(x): return [x] * 1000",
}


@pytest.mark.sandbox
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
async def test_calls_are_answered_as_each_on_its_own(program):
    inputs = [call(x) for x in (1, 2, 3, 2, 4)]
    late = [call(1) for _ in range(7)] + inputs  # asked for at once, by then
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        together = await sandbox.run(Program(source=program), inputs, LIMITS)
        ahead = await sandbox.run(Program(source=program), late, LIMITS)
    async with EmbeddedSandbox(workers=1, compiled_loop=False) as sandbox:
        apart = [
            (await sandbox.run(Program(source=program), [given], LIMITS))[0] for given in inputs
        ]
    assert list(map(seen, together)) == list(map(seen, apart))
    assert list(map(seen, ahead)) == [seen(apart[0])] * 7 + list(map(seen, apart))


def seen(execution):
    return execution.status, execution.value, execution.stdout, len(execution.stderr_tail) > 2000


@pytest.mark.sandbox
async def test_arguments_that_are_much_together_are_no_failure_of_the_program():
    inputs = [call("a" * (4 << 20)) for _ in range(20)]
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        found = await sandbox.run(
            Program(source="def f(x): return len(x)"), inputs, Limits(memory_mb=64)
        )
    assert [one.value for one in found] == [4 << 20] * 20


@pytest.mark.sandbox
async def test_no_more_is_asked_for_than_was_answered_before():
    """A program that is wrong, hangs or ends late costs little more than its first failure."""
    program = "def f(x): return x if x < 40 else [n for n in range(x * 10**7) if n < 0]"
    asked = []

    def stop(number, execution):
        asked.append(number)
        return execution.value != number

    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        found = await sandbox.run(
            Program(source=program), [call(n) for n in range(100)], LIMITS, stop_when=stop
        )
    assert asked == list(range(41))
    assert [one.value for one in found[:40]] == list(range(40))
    assert found[40].status is Status.cpu_timeout and len(found) == 41


@pytest.mark.sandbox
async def test_calls_of_several_functions_and_some_apart_come_in_their_order():
    program = "def f(x): return x, 'f'\ndef g(x): return x, 'g'"
    inputs = [call(n, function="g" if n % 7 > 4 else "f", apart=n % 11 == 3) for n in range(60)]
    inputs[30:30] = [call("a" * 200_000), call("b" * 20_000), call("c" * 20_000)]
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        found = await sandbox.run(Program(source=program), inputs, LIMITS)
    assert [one.value for one in found] == [(one.args[0], one.function) for one in inputs]


DEPTH = """
def down(n):
    try: return down(n + 1)
    except RecursionError: return n
"""


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("program", "inputs"),
    [
        (f"{DEPTH}def f(x): return down(0)", [call(1), call(2)]),
        ("def f(x): return 0 if x == 0 else 1 + f(x - 1)", [call(n) for n in range(970, 1000)]),
        (
            "def f(x): return 0 if x == 0 else 1 + f(x - 1)\nprint(f(int(input())))",
            [Stdin(str(n)) for n in range(970, 1000)],
        ),
        (
            "import sys\nsys.setrecursionlimit(5000)\ndef f(x): return 0 if x == 0 else 1 + f(x - 1)\nprint(f(int(input())))",
            [Stdin("3000")] * 2,
        ),
        (
            "def f(x):\n    if x == 0: return 0\n    return 1 + f(x - 1)\nprint(f(int(input())))",
            [Stdin("2000")] * 2,
        ),
    ],
)
async def test_a_program_may_recurse_as_deep_as_on_its_own(program, inputs):
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        shared = await sandbox.run(Program(source=program), inputs, LIMITS)
    async with EmbeddedSandbox(workers=1) as sandbox:
        alone = await sandbox.run(Program(source=program), inputs, LIMITS)
    assert list(map(seen, shared)) == list(map(seen, alone))


@pytest.mark.sandbox
async def test_a_script_that_counts_its_frames_finds_one_less_at_most():
    program = Program(source=f"{DEPTH}print(down(0))")
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        shared = await sandbox.run(program, [Stdin(""), Stdin("a")], LIMITS)
    async with EmbeddedSandbox(workers=1) as sandbox:
        (alone, _) = await sandbox.run(program, [Stdin(""), Stdin("a")], LIMITS)
    assert all(int(alone.stdout) - int(one.stdout) in (0, 1) for one in shared)


SCRIPTS = {
    "prints its streams": "import sys\nprint(sys.stdin, sys.stdout, sys.stderr, sys.stdin.buffer, input())",
    "reads lines": "import sys\ninput = sys.stdin.readline\nprint(int(input()) + 1)",
    "reads all": "import sys\nprint(sys.stdin.read().split())",
    "reads bytes": "import sys\nprint(sys.stdin.buffer.read())",
    "reads until the end": "while True:\n    try: print(input())\n    except EOFError: break",
    "reads too far": "print(input(), input(), input(), input())",
    "ends with a code": "print(1)\nexit(int(input()))",
    "ends with a word": "import sys\nsys.exit('bad')",
    "ends without a code": "import sys\nsys.exit()",
    "raises": "print(1 // (int(input()) - 2))",
    "keeps global names": "seen = []\ndef f():\n    global n\n    n = len(seen)\nseen.append(input())\nf()\nprint(n)",
    "has a main": "def main(): print(input())\nif __name__ == '__main__': main()",
    "writes to both": "import sys\nprint('a', file=sys.stderr)\nsys.stdout.write('b')",
    "hangs": "if input() == '2':\n    while True: pass\nprint(1)",
    "prints much": "print('a' * (2 << 20) if input() == '2' else 1)",
    "takes memory": "n = bytearray(1 << 40) if input() == '2' else 1\nprint(n)",
    "prints what it cannot": "print('\\ud800')",
    "prints in its own way": "print(*input().split(), sep='\\r\\n', end='', flush=True)",
    "does not compile": "print(",
}


@pytest.mark.sandbox
@pytest.mark.parametrize("program", SCRIPTS.values(), ids=SCRIPTS)
async def test_scripts_are_answered_as_each_on_its_own(program):
    inputs = [Stdin(text) for text in ("1\n", "2\nb\r\nc\n", "3", "", "1\n\udc80é")]
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        shared = await sandbox.run(Program(source=program), inputs, LIMITS)
    async with EmbeddedSandbox(workers=1) as sandbox:
        alone = await sandbox.run(Program(source=program), inputs, LIMITS)
    for one, other in zip(shared, alone, strict=True):
        assert (seen(one), one.exit_code, one.stderr_tail) == (
            seen(other),
            other.exit_code,
            other.stderr_tail,
        )


@pytest.mark.sandbox
async def test_a_call_that_is_apart_gets_a_process_that_knows_no_other_input():
    source = "def f(x): print(x); return x"
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        inputs = [call(1), call(2), call(3, apart=True), call(4)]
        found = await sandbox.run(Program(source=source), inputs, LIMITS)
    assert [(one.value, one.stdout) for one in found] == [(n, f"{n}\n") for n in (1, 2, 3, 4)]


# ── asserts that share their state ────────────────────────────────────────────────────────────────

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
