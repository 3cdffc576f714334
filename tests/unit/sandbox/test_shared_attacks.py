"""Programs that know this sandbox's source gain nothing where their inputs share a process.

An even input is one that a program can answer. Of an odd one nobody but the host knows the answer. At an
odd input each program attacks: it must not pass that input, must not see a later input, and the even
inputs stay its own to pass. What a program may gain, the arguments of earlier inputs, is in
`docs/grading.md`.
"""

import asyncio
import secrets

import pytest

from coding_model_project.errors import OverloadError
from coding_model_project.grading.execution import inputs_of, judge_execution
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Call, Isolation, Limits, Problem, Program, Test

LIMITS = Limits(cpu_s=0.3, wall_s=5, memory_mb=200, output_kb=64)
N = 4
TRIES = 4
"""Runs of an attack that a busy machine ends: the grader tries again, too."""

BEFORE = """
import gc, os, signal, sys, threading, time
SEEN = []
def frame(value, code=0, first=b"+"):
    body = first + bytes([code]) + value
    return len(body).to_bytes(8, "little") + body
def f(n, token):
    SEEN.append((n, token))
    if n % 2 == 0:
        return [n, token]
    return attack(n, token)
"""

ATTACKS = {
    # ways to end
    "exits at once": "def attack(n, token): os._exit(0)",
    "exits as a script does": "def attack(n, token): sys.exit(0)",
    "kills itself": "def attack(n, token): os.kill(os.getpid(), 9)",
    "stops itself": "def attack(n, token): os.kill(os.getpid(), signal.SIGSTOP); return 1",
    "crashes": "def attack(n, token): os.kill(os.getpid(), 11); os.abort()",
    "dies after its answer": """
def attack(n, token):
    threading.Thread(target=lambda: (time.sleep(0.005), os._exit(0))).start()
    return True
""",
    "crashes by recursion": """
def deep(x): return [deep(x + 1)]
def attack(n, token):
    sys.setrecursionlimit(10**9)
    return deep(0)
""",
    "raises what cannot be printed": """
class Evil(BaseException):
    def __str__(self):
        while True: pass
    __repr__ = __str__
def attack(n, token): raise Evil
""",
    "raises at any moment": """
def late(*_): raise ZeroDivisionError
signal.signal(signal.SIGALRM, late)
def attack(n, token):
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    return True
""",
    # forged answers
    "sends an answer and returns another": """
def attack(n, token):
    os.write(4, frame(b"true"))
    return True
""",
    "answers later inputs ahead": """
def attack(n, token):
    os.write(4, frame(b"true") * 50)
    return True
""",
    "answers later inputs from a thread": """
def forge():
    for _ in range(200):
        os.write(4, frame(b"true"))
        time.sleep(0.001)
def attack(n, token):
    threading.Thread(target=forge, daemon=True).start()
    return True
""",
    "takes the requests in a thread": """
def steal():
    while True:
        data = os.read(3, 1 << 16)
        os.write(4, frame(b"true"))
def attack(n, token):
    threading.Thread(target=steal, daemon=True).start()
    return True
""",
    "claims a huge answer": """
def attack(n, token):
    os.write(4, (1 << 62).to_bytes(8, "little") + b"+")
    time.sleep(9)
""",
    "sends an empty answer": "def attack(n, token): os.write(4, bytes(8)); time.sleep(9)",
    "sends half a length": "def attack(n, token): os.write(4, b'123'); os._exit(0)",
    "sends no value": "def attack(n, token): os.write(4, frame(b'')); time.sleep(9)",
    "claims the end of its tests": """
def attack(n, token):
    os.write(4, frame(b'{"passed": true}', first=b"."))
    time.sleep(9)
""",
    "claims a pass as the tests do": """
def attack(n, token):
    body = b'+{"passed": true}'
    os.write(4, len(body).to_bytes(8, "little") + body)
    os._exit(0)
""",
    "claims a kill by the machine": """
def attack(n, token):
    os.write(4, frame(b"true", code=247))
    os._exit(247)
""",
    "sends what is not JSON": """
BAD = [b"{", b'{"t": 1}', b'{"d": [[1]]}', b"[" * 9000, b'{"i": "zz"}', b'{"o": "x"}', b"NaN",
       b'{"c": [1]}', b"\\xff\\xfe", b'{"s": [[]]}', b'"\\\\ud800"', b"1e999", b'{"b": "0"}']
def attack(n, token):
    os.write(4, frame(BAD[(len(SEEN) + int(time.time() * 1e6)) % len(BAD)]))
    os._exit(0)
""",
    "sends answers that nest": """
def attack(n, token):
    os.write(4, frame(b"[" * 30000 + b"]" * 30000))
    os._exit(0)
""",
    "changes the module that answers": """
def attack(n, token):
    names = sys._getframe(2).f_globals
    names["codec"].dumps = lambda *_, **__: b"true"
    names["exchange"].send = lambda to, answer: os.write(to, frame(b"true") * 3)
    return True
""",
    # values
    "equals everything": """
class Any(int):
    __eq__ = lambda *_: True
    __hash__ = lambda *_: 0
def attack(n, token): return Any()
""",
    "returns text that is no text": "def attack(n, token): return '\\ud800' * 100",
    "returns too much": "def attack(n, token): return 'a' * (1 << 20)",
    "returns what does not end": """
class Endless(list):
    def __iter__(self):
        while True: yield 1
def attack(n, token): return Endless([1])
""",
    # descriptors
    "closes its answers": "def attack(n, token): os.close(4); return True",
    "closes its requests": "def attack(n, token): os.close(3); return True",
    "closes all": "def attack(n, token): os.closerange(0, 300); return True",
    "answers to its output": "def attack(n, token): os.dup2(1, 4); return True",
    "prints to its answers": """
def attack(n, token):
    os.dup2(4, 1)
    os.dup2(4, 2)
    print(frame(b"true"))
    return True
""",
    "changes its descriptors": """
import fcntl
def attack(n, token):
    for fd in range(5):
        for what in ((4, 2048), (1031, 4096), (1033, 15), (2, 0)):
            try: fcntl.fcntl(fd, *what)
            except OSError: pass
    return True
""",
    "writes wherever it can": """
def attack(n, token):
    for fd in range(5, 600):
        try: os.write(fd, frame(b"true"))
        except OSError: pass
    return True
""",
    "grows and shrinks its output": """
def attack(n, token):
    for fd in (1, 2):
        for change in (lambda: os.ftruncate(fd, 60000), lambda: os.lseek(fd, 60000, 0),
                       lambda: os.write(fd, b"x"), lambda: os.ftruncate(fd, 0)):
            try: change()
            except OSError: pass
    return True
""",
    # resources
    "never ends": "def attack(n, token):\n    while True: pass",
    "waits": "def attack(n, token): time.sleep(99)",
    "works on after its answer": """
def work():
    while True: pass
def attack(n, token):
    threading.Thread(target=work, daemon=True).start()
    return True
""",
    "takes all memory": "def attack(n, token): return [0] * 10**9",
    "keeps memory": """
KEPT = []
def attack(n, token):
    KEPT.append(bytearray(150 << 20))
    return True
""",
    "prints without end": "def attack(n, token):\n    while True: print('x' * 1000)",
    "prints what is no text": """
def attack(n, token):
    sys.stdout.buffer.write(b"\\xed\\xa0\\x80\\xff" * 100)
    sys.stderr.buffer.write(b"\\xed\\xa0\\x80\\xff" * 1000)
    raise ValueError("\\ud800" * 3000)
""",
    "breaks its streams": """
class Broken:
    closed = False
    def write(self, text): raise OSError
    def flush(self): raise SystemExit(0)
def attack(n, token):
    sys.stdout = sys.stderr = Broken()
    return True
""",
    "starts threads": """
def attack(n, token):
    for _ in range(3000):
        threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
    return True
""",
    "raises its limits": """
import resource
def attack(n, token):
    for kind in range(16):
        try: resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (OSError, ValueError): pass
    return bytearray(400 << 20)[:1] + b"x"
""",
    # others' processes
    "leaves a child": """
def attack(n, token):
    for start in (os.fork, lambda: os.posix_spawn("/usr/bin/python3", ["x"], {})):
        try:
            if start() == 0:
                while True: os.write(4, frame(b"true"))
        except OSError: pass
    return True
""",
    "signals its parent": """
def attack(n, token):
    for pid in {os.getppid(), 1, 2, 3, -1} - {os.getpid()}:
        for kind in (9, 19):
            try: os.kill(pid, kind)
            except OSError: pass
    return True
""",
    "reads its parent": """
import ctypes
def attack(n, token):
    libc = ctypes.CDLL(None)
    parent = os.getppid()
    return [libc.ptrace(16, parent, 0, 0) == 0, libc.process_vm_readv(parent, 0, 0, 0, 0, 0) == 0]
""",
    "looks for what it has not got": """
def attack(n, token):
    found = set()
    for one in gc.get_objects():
        for inner in one.values() if type(one) is dict else one if type(one) in (list, tuple) else ():
            if type(inner) in (str, bytes):
                found.add(str(inner)[:2000])
    at = sys._getframe()
    while at is not None:
        found.add(repr(at.f_locals)[:5000])
        at = at.f_back
    try:
        with open("/proc/self/mem", "rb", 0) as memory, open("/proc/self/maps") as maps:
            for line in maps:
                low, high = (int(end, 16) for end in line.split()[0].split("-"))
                if "rw" in line and high - low < 50 << 20:
                    memory.seek(low)
                    found.add(memory.read(high - low).decode("latin-1"))
    except OSError: pass
    for text in found:
        for part in text.split("later-")[1:]:
            print("later-" + part[:24])
    return True
""",
}
MAY_FAIL_EVEN = {  # they do what also harms their own next input
    "changes the module that answers",
    "answers later inputs from a thread",
    "takes the requests in a thread",
    "raises at any moment",
    "breaks its streams",
    "changes its descriptors",
    "prints to its answers",
    "answers to its output",
    "dies after its answer",
    "sends an answer and returns another",
    "answers later inputs ahead",
    "starts threads",
    "sends no value",
}


def made_problem():
    tests = []
    for n in range(N):
        token = f"later-{secrets.token_hex(8)}"
        secret = [secrets.randbits(60), token]
        tests.append(Test(Call("f", (n, token)), expected=[n, token] if n % 2 == 0 else secret))
    return Problem(
        id="mine/1", split="test", statement="", tests=tuple(tests), limits=LIMITS,
        isolation=Isolation.shared,
    )  # fmt: skip


async def judged(sandbox, source, problem):
    inputs = inputs_of(problem.tests, problem.isolation)
    found = await sandbox.run(Program(source=source), inputs, LIMITS)
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
        if one.cpu_s > 2 * LIMITS.cpu_s:
            return f"{name}: {one.cpu_s:.1f} s of CPU at input {index}"
    return None


@pytest.mark.sandbox
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
