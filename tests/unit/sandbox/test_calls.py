"""Tests that one process answers give what each would give in a process of its own."""

import pytest

from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.embedded.fast_path import calls
from coding_model_project.sandbox.embedded.fast_path.stateless import is_stateless
from coding_model_project.sandbox.embedded.outcomes import Ended
from coding_model_project.types import Asserts, Call, Limits, Opaque, Program, Status, Stdin

LIMITS = Limits(cpu_s=1, wall_s=5)


def call(*args, function="f"):
    return Call(function=function, args=args)


def asserts(source, entry_point="f"):
    return Asserts(source=source, entry_point=entry_point)


# ── which programs ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "source",
    [
        '"""Doubles."""\nimport math\nfrom collections import Counter\n\ndef f(x, y=2): return x * y',
        "MOD = 10**9 + 7\nINF = float('inf')\nPAIR = (1, -2)\ndef f(x): return x % MOD",
        "class Solution:\n    def f(self, x):\n        self.seen = [x]\n        return self.seen",
        "class P:\n    kind = 'p'\n    @staticmethod\n    def g(x): return x\ndef f(x): return P.g(x)",
        "def f(x):\n    a = {}\n    def g(n):\n        nonlocal x\n        a[n] = x\n    return g(x)",
        "class E(Exception): pass\ndef f(x):\n    try: raise E\n    except E: return isinstance(x, E)",
        "class N:\n    def __init__(self, x: 'N'): self.x = x\ndef f(x) -> N: return N(x).x",
        "class A: pass\nclass B(A):\n    def __init__(self): super().__init__(); self.x = 1",
        "def f(x): return x\nif __name__ == '__main__':\n    print(f(int(input())))",
        "square = lambda x: x * x\ndef f(x): return square(x)",
    ],
)
def test_functions_and_constants_leave_nothing_behind(source):
    assert is_stateless(source.encode())


@pytest.mark.parametrize(
    "source",
    [
        "n = 0\ndef f(x):\n    global n\n    n += x\n    return n",
        "seen = []\ndef f(x): seen.append(x); return len(seen)",
        "seen = {}\ndef f(x): return seen.setdefault(0, x)",
        "def f(x, seen=[]): seen.append(x); return len(seen)",
        "def f(x, *, seen={}): return seen.setdefault(0, x)",
        "def f(x): f.n = getattr(f, 'n', 0) + 1; return f.n",
        "class P:\n    n = []\ndef f(x): P.n.append(x); return len(P.n)",
        "class P:\n    n = 0\ndef f(x): P.n += 1; return P.n",
        "class P:\n    n = 0\n    @classmethod\n    def g(c): c.n += 1\ndef f(x): return P.g()",
        "import functools\n@functools.cache\ndef f(x): return [x]",
        "import random\ndef f(x): return random.random()",
        "import sys\ndef f(x): sys.path.append(x); return len(sys.path)",
        "def f(x):\n    import os\n    return os.getpid()",
        "from itertools import count\nn = count()\ndef f(x): return next(n)",
        "import math\ndef f(x): math.n = x; return x",
        "def f(x): globals()['n'] = x",
        "def f(x): return f.__dict__.setdefault('n', x)",
        "def f(x): return __builtins__",
        "def f(x): return open('n', 'a')",
        "print('hello')\ndef f(x): return x",
        "from helpers import g\ndef f(x): return g(x)",
        "if __name__ != '__main__':\n    seen = []\ndef f(x): seen.append(x); return len(seen)",
        "class S:\n    n = 0\n    def h(self): self.n += 1; return self.n\ndef f(x): return S.h(S)",
        "class S:\n    n = 0\n    @classmethod\n    def h(self): self.n += 1\ndef f(x): return S.h()",
        "class S:\n    n = 0\ndef h(self): self.n += 1\ndef f(x): return h(type(S()))",
        "from enum import Enum\nclass C(Enum):\n    A = 1\ndef f(x): return C.A.hit()",
        "def f(x: (seen := [])): seen.append(x); return len(seen)",
        "from collections.abc import Sized\nclass P: pass\ndef f(x): Sized.register(P)",
        "from functools import partial\nclass P: pass\ndef f(x): return partial(P)",
        "if f\"{'\x7f'}\": pass\ndef f(x): return x",
        "def f(x): return 1" + " + 1" * 5000,
    ],
)
def test_what_may_leave_something_behind_is_asked_once(source):
    assert not is_stateless(source.encode())


# ── which tests ───────────────────────────────────────────────────────────────────────────────────


def test_calls_of_one_function_are_asked_together():
    asked = calls.of([call(1), call([2], "x")])
    assert asked.request[0] == {"function": "f", "calls": True}
    assert asked.arguments == [[(1,)], [([2], "x")]]


def test_asserts_that_compare_with_literals_are_calls():
    asked = calls.of(
        [asserts("assert f(1, -2) == {3}\nassert candidate([(4, 'x')]) == True, 'no'\n")]
    )
    assert asked.arguments == [[(1, -2), ([(4, "x")],)]]


@pytest.mark.parametrize(
    "inputs",
    [
        [call(1), call(1, function="g")],
        [call(1), Stdin(text="1")],
        [call(1), asserts("assert g(1) == 1", entry_point="g")],
        [asserts("assert f(1) == 1", entry_point=None)],
        [asserts("")],
        [asserts("import math\nassert f(1) == 1")],
        [asserts("assert f(1)")],
        [asserts("assert g(1) == 1")],
        [asserts("assert f(x) == 1")],
        [asserts("assert f(x=1) == 1")],
        [asserts("assert f(*[1]) == 1")],
        [asserts("assert f(1) == f(2)")],
        [asserts("assert f(1) == 1 == 1")],
        [asserts("assert f(1) is None")],
        [asserts("assert f(...) == 1")],
        [asserts("assert f({1, 2}) == 1")],  # in whose order?
        [asserts("assert f([1]) == None")],  # what became of the list?
        [asserts("assert f(1) == 1, f(2)")],
        [asserts("assert f(1) == [\n1]")],  # which line fails is Python's to say
        [asserts("assert f(1) == 1"), asserts("assert f(2")],
    ],
)
def test_other_tests_are_not(inputs):
    assert calls.of(inputs) is None


# ── what the process said ─────────────────────────────────────────────────────────────────────────


def ended(answered, printed=b"", exit=0):
    return Ended(
        confined=True, exit=exit, cpu_s=0.3, wall_s=0.6, printed=printed, answered=answered
    )


def test_answers_are_read_line_by_line():
    asked = calls.of([call(1), call(2), call(3)])
    said = ended(b'=2 1\n!2 "it broke"\n=5 [3]\n', b"a\nbc\n")
    first, second, third = calls.believed(asked, said, LIMITS)
    assert (first.value, first.stdout, first.cpu_s) == (1, "a\n", pytest.approx(0.1))
    assert (second.status, second.stderr_tail) == (Status.raised, "it broke")
    assert (third.value, third.stdout) == ([3], "bc\n")


@pytest.mark.parametrize(
    "answered",
    [
        b"=0 1",
        b"=0 1\n1\n",
        b"=0 1\n=x 2\n",
        b"=0 1\n=-1 2\n",
        b"=0 1\n=9 2\n",  # more than was printed
        b"=0 1\n!0 7\n",
        b"!\n",
    ],
)
def test_what_is_no_answer_is_not_believed_and_nothing_behind_it(answered):
    asked = calls.of([call(1), call(2), call(3)])
    found = calls.believed(asked, ended(answered), LIMITS)
    assert [one.value for one in found] == [1] * (answered.count(b"\n") > 1)


@pytest.mark.parametrize("exit", [1, -11])
def test_a_process_that_did_not_end_well_shows_nothing_of_what_it_answered(exit):
    asked = calls.of([call(1), call(2)])
    assert calls.believed(asked, ended(b"=0 1\n", exit=exit), LIMITS) == []
    (first,) = calls.believed(asked, ended(b"", exit=exit), LIMITS)
    assert first.status in (Status.raised, Status.signalled)


def test_the_first_answers_alone_of_a_program_that_may_have_a_state():
    asked = calls.of([call(1), call(2)])
    (first,) = calls.believed(asked, ended(b"[1]", b"printed\n"), LIMITS)
    assert (first.value, first.stdout, first.cpu_s) == ([1], "printed\n", 0.3)


def test_no_more_is_read_than_was_asked():
    asked = calls.of([asserts("assert f(1) == 1")])
    said = ended(b"=0 1\n=1000000 1\n" * 60_000, b"x" * 1_000_000)
    assert len(calls.believed(asked, said, LIMITS)) == 1


@pytest.mark.parametrize("depth", range(190, 250, 3))
def test_an_answer_that_nests_deep_is_no_trouble_of_the_host(depth):
    deep = b'{"d":[[1,["a",' * depth + b"1" + b"]]]}" * depth
    calls.believed(calls.of([asserts("assert f(1) == 1")]), ended(b"=0 %b\n" % deep), LIMITS)


def test_asserts_of_a_program_with_a_state_are_left_to_one_another():
    asked = calls.of([asserts("assert f(1) == 1"), asserts("assert f(2) == 2")])
    assert calls.believed(asked, ended(b"=0 1\n"), LIMITS) == []


def test_an_assert_on_a_value_that_is_no_data_is_left_to_its_own_process():
    asked = calls.of([asserts("assert f(1) == [1]"), asserts("assert f(2) == 2")])
    (first,) = calls.believed(asked, ended(b'=0 [1]\n=0 [{"o": "Thing"}]\n'), LIMITS)
    assert first.value is True
    assert Opaque("Thing") != 2
    wrong = calls.believed(asked, ended(b"=0 [1]\n=0 3\n"), LIMITS)[1]
    assert wrong.value == "line 1: assert f(2) == 2"


# ── in the sandbox ────────────────────────────────────────────────────────────────────────────────

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
}


@pytest.mark.sandbox
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize(
    "inputs",
    [
        [call(x) for x in (1, 2, 3)],
        [asserts(f"assert f({x}) == {x}") for x in (1, 2, 3)],
        [asserts("assert f(1) == 1\nassert f(2) == 2\n"), asserts("assert f(3) == 3")],
    ],
    ids=["calls", "asserts", "pairs"],
)
async def test_as_each_on_its_own(program, inputs):
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        together = await sandbox.run(Program(source=program), inputs, LIMITS)
    async with EmbeddedSandbox(workers=1, compiled_loop=False) as sandbox:
        apart = [
            (await sandbox.run(Program(source=program), [given], LIMITS))[0] for given in inputs
        ]
    assert list(map(seen, together)) == list(map(seen, apart))


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
async def test_a_program_that_writes_the_answers_itself_only_guesses():
    program = "import os\nos.write(3, b'=0 1\\n=0 1\\n=0 1\\n')\nos._exit(0)"
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        found = await sandbox.run(
            Program(source=program), [asserts(f"assert f({x}) == {x}") for x in (1, 2, 3)], LIMITS
        )
    assert [one.value for one in found] == [
        True,
        "line 1: assert f(2) == 2",
        "line 1: assert f(3) == 3",
    ]
