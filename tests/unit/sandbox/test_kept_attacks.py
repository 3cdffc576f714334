"""A program that got past the proof gains nothing in a process that answers several inputs."""
# ruff: noqa: E501 - a program is best read on one line

import subprocess
import sys

import psutil
import pytest

from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.embedded.slot import Slot
from coding_model_project.types import Execution, Limits, Program
from tests.unit.sandbox.test_kept import LIMITS, call


@pytest.fixture
def trusting(monkeypatch):
    """Treat every program as proven to keep no state."""
    begin = Slot._begin

    def trusting(self, *given, share, **named):
        begun = begin(self, *given, share=share, **named)
        return begun if isinstance(begun, Execution) else share is not None

    monkeypatch.setattr(Slot, "_begin", trusting)


FORGED = "(2).to_bytes(8, 'little') + b'=0'"
"""An answer that is right for none of the inputs."""
DECEIVES = {
    "answers before it is asked": f"import os\nos.write(3, {FORGED})\ndef f(x): return x",
    "is ready before it is": f"import os\nos.write(3, bytes(8) + {FORGED})\ndef f(x): return x",
    "answers the next too": f"import os\ndef f(x):\n    os.write(3, {FORGED})\n    return x",
    "answers, and then the next": f"import os, time\ndef f(x):\n    os.write(3, {FORGED})\n    time.sleep(0.01)\n    return x",
    "prints for the next": "import os, threading, time\ndef late():\n    time.sleep(0.2)\n    os.write(1, b'late')\n"
    "threading.Thread(target=late, daemon=True).start()\ndef f(x):\n    time.sleep(0.3 * (x == 2))\n    return x",
    "leaves a process that answers": "import os, time\ndef f(x):\n    if x == 1 and os.fork() == 0:\n"
    f"        time.sleep(0.1)\n        os.write(3, {FORGED})\n        os._exit(0)\n    time.sleep(0.3)\n    return x",
    "answers without end": "import os\ndef f(x):\n    while True: os.write(3, b'\\xff' * 4096)",
    "half an answer": "import os\ndef f(x):\n    os.write(3, (9).to_bytes(8, 'little'))\n    os._exit(0)",
    "an answer of no kind": "import os\ndef f(x):\n    os.write(3, (1).to_bytes(8, 'little') + b'?')\n    while True: pass",
    "reads no more requests": "import os, time\nos.dup2(0, 4)\ndef f(x): return x",
    "closes its requests": "import os\ndef f(x):\n    try: os.close(4)\n    except OSError: pass\n    return x",
    "ends in silence": "import os\ndef f(x): os._exit(0)",
    "replaces our functions": "import sys\nours = sys._getframe(2).f_globals\n"
    "ours['exchange'].send = lambda *a: None\ndef f(x): return x",
}


@pytest.mark.sandbox
@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("program", DECEIVES.values(), ids=DECEIVES)
async def test_a_program_that_deceives_the_proof_gains_nothing(program):
    """It is right only where it is right in processes of its own."""
    inputs = [call(x) for x in range(1, 12)]
    limits = Limits(cpu_s=1, wall_s=2)
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        shared = await sandbox.run(Program(source=program), inputs, limits)
    async with EmbeddedSandbox(workers=1) as sandbox:
        alone = await sandbox.run(Program(source=program), inputs, limits)
    assert len(shared) == len(inputs)
    for x, (one, other) in enumerate(zip(shared, alone, strict=True), 1):
        assert one.value != x or other.value == x
        assert "late" not in one.stdout or "late" in other.stdout


LOOKS = """
import gc, os, re
found = set()
def look(data):
    found.update(int(n) for n in re.findall(rb"secret-(\\d)-word", data))
def f(x):
    for fd in range(3, 12):
        try: look(os.pread(fd, 1 << 20, 0))
        except OSError: pass
    for thing in gc.get_objects():
        try: look(repr(thing).encode())
        except Exception: pass
    return sorted(found)
"""


@pytest.mark.sandbox
@pytest.mark.usefixtures("trusting")
async def test_arguments_come_when_their_call_is_made():
    """A program that looks through all it can read finds no argument of a later call."""
    inputs = [call(f"secret-{n}-word") for n in range(9)]
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        found = await sandbox.run(Program(source=LOOKS), inputs, Limits(cpu_s=10, wall_s=20))
    assert all(n in one.value and max(one.value) == n for n, one in enumerate(found))


MARKS = """
import sys
def f(x):
    frame, seen = sys._getframe(), []
    while frame:
        seen += [repr(value) for value in frame.f_locals.values()]
        frame = frame.f_back
    return x, any("'apart': " in text and "'apart': %s" % (x % 2 == 0) not in text for text in seen)
"""


@pytest.mark.sandbox
@pytest.mark.usefixtures("trusting")
async def test_a_process_is_forked_before_anything_is_known_of_later_inputs():
    """A mark says of an input that its answer occurs in those before."""
    inputs = [call(n, apart=n % 2 == 0) for n in range(20)]
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        found = await sandbox.run(Program(source=MARKS), inputs, LIMITS)
    assert [one.value for one in found if one.value[0] % 2 == 0] == [
        (n, False) for n in range(0, 20, 2)
    ]


SCAN = r"""
import ctypes, os, re, select, time
from coding_model_project.sandbox.embedded.exchange import Exchange, wipe
for first, more in ((40, 60), (200, 300), (1000, 24), (3000, 70_000), (0, 100)):
    pipes = Exchange()
    if os.fork() == 0:  # this process never has the secret but in its answer
        secret = b"secret-" + b"%040d" % int.from_bytes(os.urandom(16), "big")
        whole = secret * (1 + (first + more) // len(secret))
        os.write(pipes.inner[0], len(whole).to_bytes(8, "little") + whole[:first])
        time.sleep(0.01)
        while more and (rest := whole[first:]):
            first += os.write(pipes.inner[0], rest)
        os._exit(0)
    pipes.begin()
    content = pipes.answer(lambda fd, events: bool(select.select([fd], [], [], 9)[0]), 1 << 20)
    assert content and content.startswith(b"secret-")
    wipe(content)
    os.wait()
window = ctypes.create_string_buffer(1 << 16)
at = ctypes.addressof(window)
found = 0
memory = os.open("/proc/self/mem", os.O_RDONLY)
for line in open("/proc/self/maps").read().splitlines():
    area, rights = line.split()[:2]
    low, high = (int(end, 16) for end in area.split("-"))
    while "rw" in rights and low < high:
        n = min(len(window), high - low)
        if not (low <= at < low + n or at <= low < at + len(window)):
            ctypes.memset(at, 0, len(window))
            try:
                os.preadv(memory, [memoryview(window)[:n]], low)
            except OSError:
                break
            found += len(re.findall(rb"secret-\d{40}", memoryview(window)))
        low += n
print(found)
"""


def test_an_answer_that_came_in_parts_leaves_no_copy_in_memory():
    """Every process that is forked later could find it."""
    done = subprocess.run([sys.executable, "-c", SCAN], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"0\n"


@pytest.mark.sandbox
@pytest.mark.usefixtures("trusting")
async def test_a_process_that_is_given_up_ends():
    """An answer of just the limit is judged on its own, and nobody watches who gave it."""
    program = "def f(n): return 'a' * (65536 - 3) if n == 0 else n"
    at_work = []
    before = set(psutil.Process().children(recursive=True))

    def stop(number, execution):
        at_work.append(len(set(psutil.Process().children(recursive=True)) - before))
        return False

    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        found = await sandbox.run(
            Program(source=program), [call(n) for n in range(3)], Limits(output_kb=64),
            stop_when=stop,
        )  # fmt: skip
    assert [one.value for one in found[1:]] == [1, 2]
    assert at_work == [2, 2, 2]  # the zygote and the program's own


@pytest.mark.sandbox
@pytest.mark.usefixtures("trusting")
async def test_all_inputs_of_a_process_have_the_time_of_one():
    """So work that a program carries over, if it could, would gain it nothing."""
    source = (
        "import time\nspent = []\ndef f(x):\n    spent.append(1)\n    end = time.process_time() + 0.1\n"
        "    while time.process_time() < end: pass\n    return len(spent)"
    )
    async with EmbeddedSandbox(workers=1, share_processes=True) as sandbox:
        found = await sandbox.run(
            Program(source=source), [call(n) for n in range(6)], Limits(cpu_s=0.35, wall_s=5)
        )
    assert [one.value for one in found] == [1, 2, 3, 1, 1, 1]
