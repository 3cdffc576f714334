"""Exported tasks are judged without their verifiers: as these judge, and only if they are unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from coding_model_project.harbor.agents import Script, SolutionFile
from coding_model_project.harbor.export.exporting import export
from coding_model_project.harbor.export.judging import ExportedJudge
from coding_model_project.harbor.format.task import Task, load_task
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.harbor.trial import Trials
from coding_model_project.types import Asserts, Call, Isolation, Limits, Problem, Stdin, Test
from tests.tables import tables
from tests.text_cases import text_cases
from tests.unit.harbor.places import need_rooms, run_in_environments

CASES = tables("harbor")

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


def judged(folder: Path, tried: Sequence[tuple[Problem, bytes | str]], *, shortcuts: bool):
    """Return rewards, integrity and exception of programs, by the verifier or without it."""

    async def run(environments, number: int, places: asyncio.Semaphore):
        given, program = tried[number]
        (exported,) = export([given], folder / f"{number}-{shortcuts}").tasks
        async with places:
            agent = Written(program.encode() if isinstance(program, str) else program)
            outcome = await Trials(environments).run(load_task(exported), agent)
        return outcome.rewards, outcome.integrity, outcome.exception

    async def all_of_them():
        places = asyncio.Semaphore(AT_ONCE)
        async with EmbeddedEnvironments(shortcuts=shortcuts) as environments:
            return await asyncio.gather(*(run(environments, n, places) for n in range(len(tried))))

    need_rooms()
    return asyncio.run(all_of_them())


def both_ways(folder: Path, tried: Sequence[tuple[Problem, bytes | str]]):
    """Return each program with its outcomes by the verifier and without it."""
    slow, fast = (judged(folder, tried, shortcuts=shortcuts) for shortcuts in (False, True))
    return [(program, *ends) for (_, program), *ends in zip(tried, slow, fast, strict=True)]


class Written:
    """Writes a program of any bytes."""

    name = "written"

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def run(self, task, step, environment) -> None:
        await environment.write_file("/app/solution.py", self._content)


@pytest.mark.parametrize("form", PROBLEMS)
def test_programs_earn_what_the_verifier_gives(tmp_path, form):
    given = PROBLEMS[form]
    programs = [given.gold[0], *(text for _, mark, text in WRITTEN if mark == form)]
    programs += ODD.get(form, [])
    found = both_ways(tmp_path / "all", [(given, program) for program in programs])
    # On a busy machine a program may get too little time for a verdict: such are tried again.
    doubted = [(given, program) for program, slow, fast in found if slow != fast]
    assert [one for one in both_ways(tmp_path / "again", doubted) if one[1] != one[2]] == []
    assert found[0][2][0] == {"reward": 1.0, "pass_rate": 1.0}


CHANGES = CASES["changes"]


def is_judged_apart(task: Task) -> bool:
    judge = ExportedJudge()
    return judge._look_up(task, task.steps[0]) is not None


@pytest.mark.parametrize("name", CHANGES)
def test_a_task_that_was_changed_has_its_verifier_run(tmp_path, name):
    (folder,) = export([SCRIPT], tmp_path / "tasks").tasks
    assert is_judged_apart(load_task(folder))
    (folder / name).write_text(CHANGES[name])
    assert not is_judged_apart(load_task(folder))


@pytest.mark.parametrize(("old", "new"), CASES["settings task"])
def test_settings_of_a_task_count_too(tmp_path, old, new):
    (folder,) = export([SCRIPT], tmp_path / "tasks").tasks
    config = folder / "task.toml"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new, 1))
    assert not is_judged_apart(load_task(folder))


def test_other_cases_are_seen_at_once(tmp_path):
    (folder,) = export([SCRIPT], tmp_path / "tasks").tasks
    judge, task = ExportedJudge(), load_task(folder)
    before = judge._look_up(task, task.steps[0])
    cases = folder / "tests" / "cases.json"
    cases.write_text(cases.read_text().replace("4040", "4041"))
    after = judge._look_up(task, task.steps[0])
    assert before is not None and after is not None and before.problem != after.problem


def test_what_is_no_program_is_the_verifiers_to_judge(tmp_path):
    (folder,) = export([SCRIPT], tmp_path / "tasks").tasks

    async def use(environments):
        trials, task = Trials(environments), load_task(folder)
        scripts = ("true", "mkdir solution.py", "ln -s /etc/passwd solution.py")
        for agent in (*map(Script, scripts), SolutionFile("solution.py", "#" * (5 << 20))):
            outcome = await trials.run(task, agent)
            assert outcome.rewards == {"reward": 0.0, "pass_rate": 0.0}, agent

    run_in_environments(use)
