import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coding_model_project.cli import main
from coding_model_project.data.governance import Role
from coding_model_project.data.loaders import LOADERS, load
from coding_model_project.data.loaders.base import Part
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.data.training.training_files import Plan, write_training_files
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.export.exporting import export
from coding_model_project.harbor.format.task import load_task
from coding_model_project.types import (
    Asserts,
    Call,
    Checker,
    Isolation,
    Limits,
    Problem,
    Stdin,
    Test,
)
from tests.bench.exported import BARE, measure
from tests.processes import ran
from tests.tables import tables
from tests.unit.harbor.folders import folder

LIMITS = Limits(cpu_s=0.5, wall_s=2.0, output_kb=64)


def problem_of(name: str, gold: str, *tests: Test, **more) -> Problem:
    return Problem(
        id=f"mine/{name}", split="train", statement="", limits=LIMITS, gold=(gold,), tests=tests,
        **more,
    )  # fmt: skip


CALLS = problem_of(
    "train/1",
    'def f(xs, *, k=2):\n    """It\'s \\"quoted\\" $HOME `x`"""\n    return {"n": (len(xs), k)}\n',
    Test(input=Call(function="f", args=([1],)), expected={"n": (1, 2)}, public=True),
    Test(input=Call(function="f", args=([1, 2],)), expected={"n": (2, 2)}),
    Test(input=Call(function="f", args=([],)), expected={"n": (0, 2)}),
)
SCRIPT = problem_of(
    "2",
    "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n",
    Test(input=Stdin("1 2\n"), expected="3\n"),
    Test(input=Stdin("4040 0"), expected="4040"),
)
PAIRS = LOADERS["mbpp"].to_problem(
    {
        "task_id": 601, "text": "Find the longest chain.", "test_setup_code": "",
        "code": "class Pair:\r\n  def __init__(self, a, b):\r\n    self.a = a\r\n    self.b = b\r\n"
        "def chain(arr, n):\r\n  return n + arr[0].a\r\n",
        "test_list": ["assert chain([Pair(5, 24)], 4) == 9", "assert chain([Pair(1, 2)], 1) == 2"],
        "challenge_test_list": [],
    },
    Part(split=None, files=()), 0,
)  # fmt: skip


def graded(problem: Problem, tmp_path: Path, program: str | None = None):
    """The rewards of a program, or of the reference solution: solve.sh and test.sh run by bash."""
    (task,) = export([problem], tmp_path / "tasks").tasks
    (tmp_path / "app").mkdir()
    for script in (task / "solution" / "solve.sh", task / "tests" / "test.sh"):
        text = script.read_text().replace("/app/", f"{tmp_path}/app/")
        script.write_text(text.replace("/logs/verifier", f"{tmp_path}/logs"))
    if program is None:
        subprocess.run(["bash", task / "solution" / "solve.sh"], check=True)
        assert (tmp_path / "app" / "solution.py").read_text() == problem.gold[0]
    else:
        (tmp_path / "app" / "solution.py").write_text(program)
    done = ran(["bash", task / "tests" / "test.sh"])
    print(done.stdout, done.stderr)
    reward = json.loads((tmp_path / "logs" / "reward.json").read_text())
    assert float((tmp_path / "logs" / "reward.txt").read_text()) == reward["reward"]
    return reward["reward"], reward["pass_rate"]


@pytest.mark.sandbox
@pytest.mark.parametrize("problem", [CALLS, SCRIPT, PAIRS], ids=lambda problem: problem.id)
def test_the_oracle_earns_everything(problem, tmp_path):
    assert graded(problem, tmp_path) == (1.0, 1.0)


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("problem", "program", "pass_rate"),
    [
        *tables("harbor")["exported programs"],
        ("PAIRS", PAIRS.gold[0].replace("n + ", "9 + 0 * n + 0 * "), 0.5),
    ],
)
def test_others_earn_what_they_pass(problem, program, pass_rate, tmp_path):
    (tmp_path / "logs").mkdir()
    program = program.replace("LOGS", f"{tmp_path}/logs")
    given = {"CALLS": CALLS, "SCRIPT": SCRIPT, "PAIRS": PAIRS}[problem]
    assert graded(given, tmp_path, program) == (0.0, pass_rate)


@pytest.mark.sandbox
def test_asserts_that_share_their_state_share_it_in_the_task(tmp_path):
    counts = problem_of(
        "5",
        "seen = []\ndef f():\n    seen.append(1)\n    return len(seen)\n",
        *(Test(Asserts(f"assert f() == {n}", "f")) for n in (1, 2, 3)),
        isolation=Isolation.shared,
    )
    assert graded(counts, tmp_path) == (1.0, 1.0)
    (tmp_path / "tasks").rename(tmp_path / "before")
    (tmp_path / "app").rename(tmp_path / "app_before")
    alone = replace(counts, isolation=Isolation.per_test)
    reward, pass_rate = graded(alone, tmp_path)
    assert (reward, pass_rate) == (0.0, pytest.approx(1 / 3))


@pytest.mark.sandbox
def test_floats_have_the_tolerance_of_the_problem(tmp_path):
    tests = (Test(Call("f", (x,)), expected=e) for x, e in ((1, 0.333), (300, 99.98)))
    thirds = problem_of("4", "def f(x):\n    return x / 3\n", *tests, atol=0.01, rtol=0.0)
    assert graded(thirds, tmp_path) == (0.0, 0.5)


@pytest.mark.sandbox
def test_no_program_earns_nothing_and_the_cases_are_gone_before_one_runs(tmp_path):
    spy = f"import glob\nprint(len(glob.glob('{tmp_path}/tasks/*/tests/cases.json')))\n"
    seen = problem_of("3", spy, Test(input=Stdin(""), expected="0"))
    assert graded(seen, tmp_path) == (1.0, 1.0)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "app").mkdir()
    (task,) = export([SCRIPT], tmp_path / "none" / "tasks").tasks
    arguments = [task / "tests" / "judge.zip", task / "tests" / "cases.json", "nowhere", tmp_path]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from coding_model_project.harbor.export.verifier import main; main(sys.argv[2:])"
    )
    subprocess.run(["python3", "-I", "-c", code, *arguments], check=True)
    assert json.loads((tmp_path / "reward.json").read_text())["reward"] == 0.0


@pytest.mark.sandbox
def test_twenty_tests_cost_less_than_twenty_interpreters(tmp_path):
    found = measure(tmp_path, 1, os.path.realpath(sys.executable), forms=("call",), sizes=(20,))
    assert found["call, 20 tests"][0] < 20 * found[BARE][0]


def test_an_instruction_names_what_the_reference_defines_and_shows_no_test(tmp_path):
    exported = export([CALLS, SCRIPT, PAIRS], tmp_path)
    texts = {path.name: load_task(path).instruction for path in exported.tasks}
    assert texts["mine-train-1"].endswith("that defines `f(xs, *, k=2)`.\n")
    assert "class Pair(a, b)` and `chain(arr, n)" in texts["mbpp-601"]
    assert "standard input" in texts["mine-2"]
    for path in exported.tasks:
        outside = [one for one in path.rglob("*") if one.is_file() and "tests" not in one.parts]
        assert not any("4040" in one.read_text() or "assert" in one.read_text() for one in outside)


def test_the_same_problems_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        export([CALLS, PAIRS], tmp_path / name)
    a, b = (
        {str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*") if one.is_file()}
        for root in (tmp_path / "a", tmp_path / "b")
    )
    assert a == b and len(a) == 16


def test_what_cannot_be_a_task_is_set_aside_with_its_reason(tmp_path):
    odd = [
        replace(SCRIPT, id="x/1", language="cpp"),
        replace(SCRIPT, id="x/2", gold=()),
        replace(SCRIPT, id="x/3", comparison="checker", checker=Checker(source="")),
        replace(SCRIPT, id="x/4", comparison="math"),
        replace(SCRIPT, id="x/5", gold=("def (",)),
        replace(CALLS, id="x/6", tests=CALLS.tests[:1]),
    ]
    exported = export([*odd, SCRIPT], tmp_path)
    assert [path.name for path in exported.tasks] == ["mine-2"]
    assert list(exported.set_aside) == [problem.id for problem in odd]
    assert "cpp" in exported.set_aside["x/1"]
    assert "checker" in exported.set_aside["x/3"]


def test_tasks_are_problems_that_their_verifier_judges(tmp_path):
    export([CALLS, SCRIPT], tmp_path / "tasks")
    folder(tmp_path / "tasks" / "plain")
    folder(tmp_path / "tasks" / "steps", '[[steps]]\nname = "a"', steps__a__instruction_md="x")
    folder(tmp_path / "tasks" / "bad", "a =")
    loaded = load("tasks", path=tmp_path / "tasks")
    assert [problem.id for problem in loaded.problems] == ["mine/2", "mine/train/1", "tasks/plain"]
    assert [Path(one.where).name for one in loaded.set_aside] == ["bad", "steps"]
    second, plain = loaded.problems[1:]
    assert (second.split, second.language, plain.language) == ("train", "python", "bash")
    assert load_task(str(second.task)).instruction == second.statement
    write_training_files(loaded.problems, tmp_path / "rows", Plan())
    kept = read_problems(tmp_path / "rows" / "problems.jsonl")
    assert {problem.task for problem in kept} == {problem.task for problem in loaded.problems}


def test_a_task_brings_its_reference_solution_if_that_is_one_program(tmp_path):
    export([CALLS], tmp_path / "tasks")
    script = "#!/bin/bash\necho 1 > out\n"
    folder(tmp_path / "tasks" / "script", solution__solve_sh=script)
    several = {"solution__solve_sh": "bash other.sh", "solution__other_sh": script}
    folder(tmp_path / "tasks" / "several", "", **several)
    loaded = {one.id: one for one in load("tasks", path=tmp_path / "tasks").problems}
    assert loaded[CALLS.id].gold == CALLS.gold[:1]
    assert loaded["tasks/script"].gold == ("echo 1 > out\n",)
    assert loaded["tasks/several"].gold == ()


def test_a_file_that_names_tasks_names_them_from_its_own_folder(tmp_path):
    task = folder(tmp_path / "mine" / "tasks" / "plain")
    row = {"id": "plain", "split": "train", "statement": "Do.", "language": "bash"}
    file = tmp_path / "mine" / "problems.jsonl"
    file.write_text(json.dumps({**row, "grader": "harbor", "task": "tasks/plain"}) + "\n")
    loaded = load("mine", path=file)
    write_training_files(loaded.problems, tmp_path / "rows", Plan())
    for kept in (loaded.problems, read_problems(tmp_path / "rows" / "problems.jsonl")):
        assert [str(Path(problem.task).resolve()) for problem in kept] == [str(task.resolve())]


def test_tasks_that_are_test_only_make_no_training_rows(tmp_path):
    export([replace(SCRIPT, id="humaneval/1", split="test")], tmp_path / "tasks")
    folder(tmp_path / "tasks" / "b", '[task]\nname = "org/HumanEval-fixed"')
    folder(tmp_path / "tasks" / "human-eval-7")
    loaded = load("tasks", path=tmp_path / "tasks")
    assert [problem.split for problem in loaded.problems] == ["test"] * 3
    plan = Plan(use=Role.validation)
    written = write_training_files(loaded.problems, tmp_path / "rows", plan)
    assert written.rows == {"rl_validation": 3}
    with pytest.raises(ConfigError, match="test only"):
        write_training_files(loaded.problems, tmp_path / "rows", Plan())


def test_a_number_of_training_tasks_and_the_others_are_for_tests(tmp_path, capsys):
    """By number, not by letters; no problem of a test split becomes a training task."""
    ids = [(f"mine/{n}", "train") for n in (10, 9, 2, 1)] + [("mine/0", "test")]
    file = tmp_path / "mine.jsonl"
    write_problems(file, [replace(SCRIPT, id=one, split=split) for one, split in ids])
    command = ["data", "export-harbor", "mine", "--path", str(file)]
    out = tmp_path / "out"
    assert main([*command, "--train-size", "3", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["tasks"] == 5
    train, test = (
        {one.name: load_task(one).config.metadata["split"] for one in (out / part).iterdir()}
        for part in ("train", "test")
    )
    assert train == dict.fromkeys(("mine-1", "mine-2", "mine-9"), "train")
    assert test == dict.fromkeys(("mine-0", "mine-10"), "test")
    assert main([*command, "--train-size", "5", "--out", str(tmp_path / "more")]) == 2
    assert "--train-size=5: only 4 problems" in capsys.readouterr().err
