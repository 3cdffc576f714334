"""The verifiers of exported tasks judge as this package does."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from coding_model_project.errors import UngradableError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.retries import Limiter
from coding_model_project.harbor.agents import Script, SolutionFile
from coding_model_project.harbor.export.exporting import export
from coding_model_project.harbor.export.verifier import problem_of
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.harbor_config import Integrity
from coding_model_project.harbor.rooms.rooms import PATH
from coding_model_project.harbor.trial import Trials
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Asserts, Call, Isolation, Limits, Problem, Stdin, Test
from tests.text_cases import text_cases
from tests.unit.harbor.places import run_in_environments

pytestmark = pytest.mark.sandbox

LIMITS = Limits(cpu_s=0.3, wall_s=2.0, output_kb=64, memory_mb=128)
AT_ONCE = 3


def problem(name: str, gold: str, *tests: Test, **more) -> Problem:
    return Problem(
        id=f"mine/{name}", split="train", statement="", limits=LIMITS, gold=(gold,),
        tests=tests, **more,
    )  # fmt: skip


ADD = "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n"
SCRIPT = problem(
    "script", ADD, Test(Stdin("1 2\n"), expected="3\n"), Test(Stdin("4040 0"), expected="4040")
)
CALLS = problem(
    "calls", "def f(xs):\n    return {'n': (len(xs), 0.5)}\n",
    Test(Call("f", ([1, 2],)), expected={"n": (2, 0.5)}),
    Test(Call("f", ([],)), expected={"n": (0, 0.5)}),
)  # fmt: skip
ASSERTS = problem(
    "asserts", "class P:\n    def __init__(s, a): s.a = a\ndef f(p):\n    return p.a + 1\n",
    *(Test(Asserts(f"assert f(P({k})) == {k + 1}", "f")) for k in (1, 2, 3)),
)  # fmt: skip
SHARED = problem(
    "shared", "seen = []\ndef f():\n    seen.append(1)\n    return len(seen)\n",
    *(Test(Asserts(f"assert f() == {n}", "f")) for n in (1, 2, 3)), isolation=Isolation.shared,
)  # fmt: skip

PROBLEMS = {"script": SCRIPT, "calls": CALLS, "asserts": ASSERTS, "shared": SHARED}
WRITTEN = text_cases(__file__, "export_programs.txt")
ODD: dict[str, list[bytes | str]] = {
    "script": [
        *("", "# coding: latin-1\nprint(3 if len('\xe9') == 2 else 0)".encode()),
        *(b"\xef\xbb\xbfprint(3)", b"print('\xff')", b"print(3)\r\nprint(0) if 0 else None\r"),
    ]
}


def by_verifier(folder: Path, given: Problem, programs: Sequence[bytes | str]):
    """Return the programs' rewards, integrity and exception, of exported tasks in rooms."""
    (exported,) = export([given], folder).tasks

    async def use(environments):
        async def one(program):
            async with places:
                agent = Written(program.encode() if isinstance(program, str) else program)
                outcome = await Trials(environments).run(load_task(exported), agent)
            return outcome.rewards, outcome.integrity, outcome.exception

        places = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*map(one, programs))

    return run_in_environments(use)


def by_sandbox(folder: Path, given: Problem, programs: Sequence[bytes | str]):
    """Return the same by this package's judge, with the limits of an exported task."""
    (exported,) = export([given], folder).tasks
    python = shutil.which("python3", path=f"{PATH}:{sys.base_prefix}/bin")  # that of rooms
    problem = problem_of(json.loads((exported / "tests" / "cases.json").read_text()))

    async def all_of_them():
        async with EmbeddedSandbox(python=python) as sandbox:
            grader = ExecutionGrader(sandbox, stop_early=False, limiter=Limiter(AT_ONCE))
            return await asyncio.gather(*(one(grader, program) for program in programs))

    async def one(grader, program):
        share = 0.0
        with suppress(UnicodeDecodeError):
            code = program if isinstance(program, str) else program.decode()
            try:
                errors = [r.error for r in (await grader.grade_code(problem, code)).results]
            except UngradableError as error:
                return error
            share = errors.count(None) / len(errors)
        return {"reward": float(share == 1), "pass_rate": share}, Integrity.isolated, None

    return asyncio.run(all_of_them())


def both_ways(folder: Path, given: Problem, programs: Sequence[bytes | str]):
    """Return each program with its outcomes by the verifier and by the sandbox."""
    slow, fast = (way(folder / way.__name__, given, programs) for way in (by_verifier, by_sandbox))
    return list(zip(programs, slow, fast, strict=True))


class Written:
    """Writes a program of any bytes."""

    name = "written"

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def run(self, task, step, environment) -> None:
        await environment.write_file("/app/solution.py", self._content)


@pytest.mark.parametrize("form", PROBLEMS)
def test_programs_earn_what_the_judge_gives(tmp_path, form):
    given = PROBLEMS[form]
    programs = [given.gold[0], *(text for _, mark, text in WRITTEN if mark == form)]
    programs += ODD.get(form, [])
    found = both_ways(tmp_path / "all", given, programs)
    # On a busy machine a program may get too little time for a verdict: such are tried again.
    doubted = [program for program, slow, fast in found if slow != fast]
    again = both_ways(tmp_path / "again", given, doubted)
    judged = [one for one in again if one[1][0] and not isinstance(one[2], UngradableError)]
    assert [one for one in judged if one[1] != one[2]] == []
    assert found[0][1][0] == {"reward": 1.0, "pass_rate": 1.0}


def test_what_is_no_program_earns_nothing(tmp_path):
    (folder,) = export([SCRIPT], tmp_path / "tasks").tasks

    async def use(environments):
        trials, task = Trials(environments), load_task(folder)
        scripts = ("true", "mkdir solution.py", "ln -s /etc/passwd solution.py")
        for agent in (*map(Script, scripts), SolutionFile("solution.py", "#" * (5 << 20))):
            outcome = await trials.run(task, agent)
            assert outcome.rewards == {"reward": 0.0, "pass_rate": 0.0}, agent

    run_in_environments(use)
