"""Against the real sandbox: no honest way to read and write is rejected, no forgery accepted."""

import asyncio
import contextlib

import psutil
import pytest

from coding_model_project.errors import UngradableError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Call, ErrorType, Limits, Problem, Test, Verdict
from tests.fakes import stdin_problem
from tests.processes import below

pytestmark = pytest.mark.sandbox

SUMS = stdin_problem(
    ("3\n1 2 3\n", "6\n1\n2\n3\n"), ("2\n10 -10\n", "0\n10\n-10"), limits=Limits(cpu_s=5, wall_s=20)
)
OUT = "print(sum(xs), *xs, sep='\\n')"

HONEST = {
    "input": f"n = int(input())\nxs = list(map(int, input().split()))\n{OUT}",
    "open_0": f"xs = [int(x) for x in open(0).read().split()[1:]]\n{OUT}",
    "readline": "import sys\ninput = sys.stdin.readline\ninput()\n"
    f"xs = [*map(int, input().split())]\n{OUT}",
    "eof_loop": f"""ls = []
while True:
    try:
        ls.append(input())
    except EOFError:
        break
xs = [int(x) for x in ls[1].split()]
{OUT}""",
    "after_the_guard": f"""if __name__ == "__main__":
    input()
xs = [*map(int, input().split())]
{OUT}""",
    "file": "import os\nassert os.path.basename(__file__) == 'main.py'\n"
    "assert os.path.dirname(os.path.abspath(__file__)) == os.getcwd()\n"
    f"input()\nxs = [*map(int, input().split())]\n{OUT}",
    "exit": f"input()\nxs = [*map(int, input().split())]\n{OUT}\nexit()",
    "fileinput": f"import fileinput\nxs = [int(x) for x in [*fileinput.input()][1].split()]\n{OUT}",
    "os_read": f"import os\nxs = [int(x) for x in os.read(0, 1 << 20).split()[1:]]\n{OUT}",
    "stdout_write": "import sys\ninput()\nxs = input().split()\n"
    "sys.stdout.write(str(sum(map(int, xs))) + '\\n' + '\\n'.join(xs))",
    "deep_thread": f"""import sys, threading
sys.setrecursionlimit(1 << 20)
threading.stack_size(64 << 20)
def deep(n):
    return n and 1 + deep(n - 1)
def main():
    input()
    xs = [*map(int, input().split())]
    assert deep(20_000) == 20_000
    {OUT}
t = threading.Thread(target=main)
t.start()
t.join()""",
    "buffered_bytes": "import sys, io, atexit\nb = io.StringIO()\n"
    "atexit.register(lambda: sys.stdout.write(b.getvalue()))\n"
    "input()\nxs = [*map(int, input().split())]\nprint(sum(xs), *xs, sep='\\n', file=b)",
    "os_exit_after_flush": f"import os, sys\ninput()\nxs = [*map(int, input().split())]\n{OUT}\n"
    "sys.stdout.flush()\nos._exit(0)",
}

CALLS = Problem(
    id="fake/call",
    split="test",
    statement="Double it.",
    tests=tuple(
        Test(input=Call(function="solve", args=(n,)), expected=[n, 2 * n]) for n in (3, 7, 11)
    ),
)

ALWAYS_EQUAL = """class Always{base}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __len__(self): return 2
    def __iter__(self): return iter([self, self])
"""

FORGED_CALLS = {
    "always_equal": ALWAYS_EQUAL.format(base="") + "def solve(n): return Always()",
    "always_equal_items": ALWAYS_EQUAL.format(base="(int)")
    + "def solve(n): return [Always(), Always()]",
    "exit_in_the_call": "import os\ndef solve(n): os._exit(0)",
    "sys_exit": "import sys\ndef solve(n): sys.exit(0)",
    "frames": """import sys, gc
def solve(n):
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            for held in (value, getattr(value, "expected", None)):
                if isinstance(held, list) and len(held) == 2 and held[0] == n:
                    return held
        frame = frame.f_back
    for held in gc.get_objects():
        if type(held) is list and len(held) == 2 and held[0] == n and held[1] == 2 * n:
            return held
""",
    "forged_result_line": "import os\nfor fd in range(3, 12):\n    try: os.write(fd, b'true')\n"
    "    except OSError: pass\nos._exit(0)",
    "patched_builtins": "import builtins\nbuiltins.all = lambda *_: True\n"
    "builtins.isinstance = lambda *_: True\ndef solve(n): return None",
}

FORGED_SCRIPTS = {
    "first_token_only": "print(open(0).read().split()[-1])",
    "all_permuted": "input()\nxs=[*map(int,input().split())]\nprint(*xs, sum(xs))",
    "right_then_fails": HONEST["input"] + "\nraise SystemExit(1)",
    "reads_files": "import os, glob\nfor p in glob.glob('*') + glob.glob('/proc/*/cmdline'):\n"
    "    try: print(open(p).read())\n    except OSError: pass",
}


@pytest.fixture
def verdicts(any_sandbox):
    """Judge programs, by name."""
    grader = ExecutionGrader(any_sandbox, stop_early=False)

    async def judge(problem: Problem, programs: dict[str, str]) -> dict[str, Verdict]:
        judged = (grader.grade_code(problem, program) for program in programs.values())
        return dict(zip(programs, await asyncio.gather(*judged), strict=True))

    return judge


async def test_honest_programs_are_accepted(verdicts):
    for name, verdict in (await verdicts(SUMS, HONEST)).items():
        assert verdict.passed, (name, verdict.results)


async def test_forged_scripts_are_rejected(verdicts):
    for name, verdict in (await verdicts(SUMS, FORGED_SCRIPTS)).items():
        assert not verdict.passed, name
        assert verdict.pass_fraction == 0, name


async def test_forged_calls_are_rejected(verdicts):
    forged = await verdicts(CALLS, FORGED_CALLS)
    for name, verdict in forged.items():
        assert not verdict.passed, name
        assert verdict.pass_fraction == 0, name
    honest = await verdicts(CALLS, {"honest": "def solve(n): return n, 2 * n"})
    assert honest["honest"].passed


async def test_errors_by_how_a_program_ends(verdicts):
    ends = {
        "def solve(n) return": ErrorType.syntax_error,
        "def solve(n): return 1 / 0": ErrorType.runtime_error,
        "def other(n): return 1": ErrorType.runtime_error,
        "def solve(n):\n    while True: pass": ErrorType.timeout,
        "import ctypes\ndef solve(n): ctypes.string_at(0)": ErrorType.runtime_error,
        "def solve(n): return 'x' * (1 << 33)": ErrorType.memory_limit,
        "def solve(n): print('x' * (1 << 22)); return [n, 2 * n]": ErrorType.output_limit,
        "def solve(n): return [2 * n, n]": ErrorType.wrong_answer,
    }
    tests = CALLS.tests[:1]
    problem = stdin_problem(tests=tests, limits=Limits(cpu_s=0.5, wall_s=5, memory_mb=256))
    for code, verdict in (await verdicts(problem, {code: code for code in ends})).items():
        assert verdict.error == ends[code], (code, verdict.results)


async def test_a_killed_sandbox_gives_no_verdict():
    slow = "import time\ndef solve(n):\n    time.sleep(60)"

    async def kill_for_ever() -> None:
        while True:
            for process in below("embedded.zygote"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            await asyncio.sleep(0.2)

    async with EmbeddedSandbox(workers=1) as sandbox:
        grader = ExecutionGrader(sandbox, stop_early=True)
        killing = asyncio.create_task(kill_for_ever())
        try:
            with pytest.raises(UngradableError):
                await grader.grade_code(CALLS, slow)
        finally:
            killing.cancel()
