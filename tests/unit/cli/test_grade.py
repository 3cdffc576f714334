"""`grade`: completions in, verdicts out."""

import io
import json

import pytest

import coding_model_project.cli as cli
from coding_model_project.cli import options
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import SandboxError
from coding_model_project.types import Harness, Instruction, Problem
from tests.fakes import stdin_problem
from tests.tables import tables
from tests.unit.harbor.folders import folder
from tests.unit.harbor.places import run_in_environments


def verdicts(text):
    return [json.loads(line) for line in text.splitlines()]


def grade(folder, *more):
    options = ["--problems", "p.jsonl", "--completions", "c.jsonl", "--out", "v.jsonl"]
    paths = [str(folder / o) if o.endswith("jsonl") else o for o in options]
    return cli.main(["grade", *paths, "--bare", *more])


def test_grade_writes_verdicts_in_order(files, sandbox, capsys):
    assert grade(files) == 0
    rows = verdicts((files / "v.jsonl").read_text())
    assert [row["problem_id"] for row in rows] == ["fake/2", *["fake/1"] * 4]
    assert [row["passed"] for row in rows] == [True, False, True, False, True]
    assert [row["error"] for row in rows] == [None, "wrong_answer", None, "no_code", None]
    assert rows[4]["cached"]
    first, second = capsys.readouterr().out.splitlines()
    assert "5 judged, 60.0% accepted, 0 ungradable" in first
    assert second == "not accepted: wrong_answer 1 (20.0%), no_code 1 (20.0%)"
    assert grade(files, "--json") == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts.pop("errors") == {"wrong_answer": 1, "no_code": 1}
    assert counts == {"judged": 5, "accepted": 3, "ungradable": 0, "reasons": {}}


def test_programs_without_a_fence_are_told_of_bare(files, sandbox, capsys):
    options = ["--problems", str(files / "p.jsonl"), "--completions", str(files / "c.jsonl")]
    assert cli.main(["grade", *options]) == 0
    captured = capsys.readouterr()
    assert "no_code 5 (100.0%)" in captured.out
    assert "5 of 5 completions" in captured.err and "pass --bare" in captured.err
    assert grade(files) == 0
    assert "--bare" not in capsys.readouterr().err


def test_each_problem_is_judged_by_its_own_grader(tmp_path, sandbox, capsys):
    sums = Problem(id="sums/1", split="train", statement="?", tests=(), answer="12")
    rule = Instruction("punctuation:no_comma")
    rules = Problem(id="rules/1", split="train", statement="?", tests=(), instructions=(rule,))
    tested = Problem(
        id="tested/1", split="test", statement="?", tests=(), harness=Harness(after="")
    )
    write_problems(tmp_path / "p.jsonl", [stdin_problem(), sums, rules, tested])
    given = [("sums/1", "So\n#### 12"), ("sums/1", "#### 13")]
    given += [("rules/1", "a, b"), ("rules/1", "a b"), ("tested/1", "x = 1")]
    lines = [json.dumps({"problem_id": name, "completion": text}) for name, text in given]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    assert grade(tmp_path) == 0
    found = verdicts((tmp_path / "v.jsonl").read_text())
    assert [one["passed"] for one in found] == [True, False, False, True, False]
    assert [one["code"] for one in found] == ["12", "13", "a, b", "a b", "x = 1"]
    assert [source.strip() for source, _ in sandbox.calls] == ["x = 1"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    tables("cli")["ungraded"],
)
def test_what_cannot_be_graded_is_one_line(files, sandbox, capsys, name, content, says):
    (files / name).parent.mkdir(exist_ok=True)
    (files / name).write_text(content)
    assert grade(files) == 2
    assert says in capsys.readouterr().err.strip().splitlines()[-1]
    assert sandbox.calls == []


def test_an_outage_is_exit_3_and_no_verdict(files, sandbox, capsys):
    sandbox.failures = 2
    assert grade(files) == 3
    rows = verdicts((files / "v.jsonl").read_text())
    lost = [row for row in rows if "ungradable" in row]
    assert [row["ungradable"]["type"] for row in lost] == ["SandboxError"] * 2
    assert not any("passed" in row for row in lost)
    assert all(row["judge_s"] > 0 for row in lost)
    said = capsys.readouterr().out
    assert "ungradable: 2 × SandboxError: the fake is down" in said
    assert "no_code 1 (33.3%)" in said  # of the judged ones


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"problem_id": "fake/1"}', '{"problem_id": "x", "completion": ""}']
)
def test_a_bad_completion_is_named_by_its_line(files, sandbox, line, capsys):
    with (files / "c.jsonl").open("a") as file:
        file.write(line + "\n")
    assert grade(files) == 2
    assert "c.jsonl:6" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"), [(SandboxError("down\nfor good"), 3), (KeyboardInterrupt(), 130)]
)
def test_a_traceback_only_with_debug(files, sandbox, monkeypatch, error, code):
    def fail(*_):
        raise error

    monkeypatch.setattr(options, "embedded_sandbox", fail)
    assert grade(files) == code
    if code == 3:
        with pytest.raises(SandboxError):
            grade(files, "--debug")


# ── the summary ───────────────────────────────────────────────────────────────────────────────────


# ── where completions and verdicts are ────────────────────────────────────────────────────────────


def test_standard_input_and_standard_output(files, sandbox, capsys, monkeypatch):
    line = b'{"problem_id": "fake/2", "completion": "2"}\n'
    command = ["grade", "--problems", str(files / "p.jsonl"), "--completions", "-", "--bare"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line)))
    assert cli.main([*command, "--out", "-"]) == 0
    captured = capsys.readouterr()
    (row,) = verdicts(captured.out)
    assert (row["problem_id"], row["passed"], row["pass_fraction"]) == ("fake/2", True, 1.0)
    assert (row["error"], row["integrity"]) == (None, "isolated")
    assert "1 judged, 100.0% accepted, 0 ungradable" in captured.err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line + b"{")))
    assert cli.main(command) == 2
    assert "--completions: standard input:2: " in capsys.readouterr().err
    assert cli.main([*command, "--json", "--out", "-"]) == 2


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (stdin_problem(id="a"), "a: problem a has no hidden tests"),
        (stdin_problem(("", "1"), id="a", comparison="vibes"), "comparison='vibes'"),
        (Problem(id="a", split="test", statement="?", tests=(), task="nowhere"), "nowhere"),
    ],
)
def test_problems_that_cannot_judge_are_refused_first(files, sandbox, capsys, problem, says):
    write_problems(files / "p.jsonl", [problem])
    (files / "c.jsonl").write_text('{"problem_id": "a", "completion": "1"}\n')
    assert grade(files) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "p.jsonl" in error and says in error
    assert sandbox.calls == []


# ── data sets by name ─────────────────────────────────────────────────────────────────────────────


def test_a_data_set_in_the_place_of_a_file(files, sandbox, capsys):
    completions = ["--completions", str(files / "c.jsonl"), "--bare"]
    assert cli.main(["grade", "--dataset", f"mine={files / 'p.jsonl'}", *completions]) == 0
    assert "5 judged, 60.0% accepted" in capsys.readouterr().out
    both = ["--dataset", "mbpp", "--problems", str(files / "p.jsonl"), *completions]
    for wrong in (completions, both):
        assert cli.main(["grade", *wrong]) == 2
        assert "pass exactly one of" in capsys.readouterr().err
    write_problems(files / "q.jsonl", [stdin_problem(("", "1"), id="fake/1")])
    assert cli.main(["grade", "--dataset", str(files / "q.jsonl"), *completions]) == 2
    assert "'fake/2' is not in --dataset=" in capsys.readouterr().err
    twice = ["--dataset", f"a={files / 'p.jsonl'}", "--dataset", f"b={files / 'p.jsonl'}"]
    assert cli.main(["grade", *twice, *completions]) == 2
    assert "'fake/1' occurs twice" in capsys.readouterr().err


@pytest.mark.sandbox
def test_a_problem_with_a_harbor_task_is_judged_by_its_verifier(files, sandbox, capsys):
    async def nothing(_):
        return None

    run_in_environments(nothing)  # skips where there are no rooms
    test = "#!/bin/bash\ncat answer > /logs/verifier/reward.txt\n"
    image = "FROM python:3.12-slim\nWORKDIR /app\n"
    folder(files / "task", tests__test_sh=test, environment__Dockerfile=image)
    row = {"id": "t", "split": "test", "statement": "?", "language": "bash"}
    row |= {"grader": "harbor", "task": "task"}
    with (files / "p.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    (files / "c.jsonl").write_text(
        '{"problem_id": "t", "completion": "echo 1 > answer"}\n'
        '{"problem_id": "t", "completion": "echo 0.5 > answer"}\n'
        '{"problem_id": "fake/1", "completion": "1"}\n'
    )
    assert grade(files) == 0
    rows = verdicts((files / "v.jsonl").read_text())
    assert [row["passed"] for row in rows] == [True, False, True]
    assert [row["rewards"] for row in rows] == [{"reward": 1.0}, {"reward": 0.5}, None]
