"""`harbor`: wrong folders are refused at once, totals and exit codes say how a grading ended."""

import json
from dataclasses import replace

import pytest

import coding_model_project.cli as cli
from coding_model_project.harbor.checking import Totals
from coding_model_project.harbor.failures import RewardFileNotFoundError, VerifierTimeoutError
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.format.tasks import Refused
from coding_model_project.harbor.outcome import StepOutcome, TrialOutcome
from tests.unit.harbor.folders import folder, solvable
from tests.unit.harbor.places import need_rooms

EVAL = ["--base-url", "http://localhost:1/v1", "--model", "m", "--out", "job"]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("command", [["grade"], ["eval", *EVAL]], ids=["grade", "eval"])
@pytest.mark.parametrize(("place", "says"), [("nowhere", "no such folder"), ("", "neither")])
def test_no_task_is_exit_2_at_once(command, place, says, tmp_path, capsys):
    path = str(tmp_path / place)
    assert cli.main(["harbor", command[0], path, *command[1:]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert path in captured.err and says in captured.err
    assert len(captured.err.splitlines()) == 1


def test_totals_count_rewards_and_causes(tmp_path):
    task = load_task(folder(tmp_path))
    tried = TrialOutcome(task=task, rewards=None, error=None, steps=())
    totals = Totals()
    late = VerifierTimeoutError("late")
    for name, rewards, error in (
        ("a", {"reward": 1}, None),
        ("b", {"reward": 0.5}, None),
        ("c", {"score": 0}, None),
        ("e", None, late),
        ("f", {"x": 1, "y": 1}, None),
    ):
        named = replace(task, label=name)
        totals.add(replace(tried, task=named, rewards=rewards, error=error))
    totals.add(Refused(path=tmp_path, label="d", reason="no"))
    assert str(totals) == (
        "6 tasks: reward 1: 1, partial: 1, 0: 1, "
        "invalid: 3 (verifier_failed 1, no_main_reward 1, refused 1)"
    )
    assert (totals.short, totals.without) == (list("bc"), list("efd"))


def test_the_reason_is_of_the_step_that_earned_less(tmp_path):
    steps = (
        StepOutcome(name="a", rewards={"reward": 1}, verifier_output="all passed\n"),
        StepOutcome(name="b", rewards={"reward": 0}, verifier_output="1 of 2\nfailed\n"),
    )
    task = load_task(folder(tmp_path))
    tried = TrialOutcome(task=task, rewards={"reward": 0.5}, error=None, steps=steps)
    assert tried.reason == "1 of 2 failed"
    refused = Refused(path=tmp_path, label="d", reason="no").line()
    assert refused.keys() == tried.line().keys()
    error = RewardFileNotFoundError("no reward file")
    broken = StepOutcome(name="a", rewards=None, error=error, verifier_output="kit: not found\n")
    tried = replace(tried, error=error, rewards=None, steps=(broken,))
    assert tried.reason == "no reward file; it printed: kit: not found"
    steps = load_task(folder(tmp_path / "b", "[[steps]]\nname = 'a'", steps__a__instruction_md="x"))
    line = replace(tried, task=steps, error=None).line()
    assert (line["exception"], line["reason"]) == ("RewardFileNotFoundError", tried.reason)


def test_results_among_tasks_are_ignored_and_alone_they_are_no_tasks(tmp_path, capsys):
    tasks = tmp_path / "tasks"
    folder(tasks / "broken", "[task]\nname = 'no-org'\n")
    for place in ("jobs/first", "jobs/first/good__abcdefg", "trial"):
        (tasks / place / "agent").mkdir(parents=True)
        for name in ("config.json", "result.json"):
            (tasks / place / name).write_text("{}")
    (tasks / "trial" / "agent" / "instruction.md").write_text("kept by an agent")
    assert cli.main(["harbor", "grade", str(tasks)]) == 1
    captured = capsys.readouterr()
    (line,) = map(json.loads, captured.out.splitlines())
    assert (line["task"], line["rewards"]) == ("broken", None)
    names = ("jobs", "trial")
    ignored = [f"ignored {tasks / n}: it holds results of jobs and no task" for n in names]
    *first, _, last = captured.err.splitlines()
    assert first == ignored and last.endswith("no valid reward: broken")
    assert cli.main(["harbor", "grade", str(tasks), "--json"]) == 1
    assert capsys.readouterr().err == ""
    for given in ([str(tasks)], ["--benchmark", f"mine={tasks}"]):
        assert cli.main(["harbor", "eval", *given, *EVAL]) == 2
        assert capsys.readouterr().err.splitlines()[:2] == ignored
    for place in ("jobs", "jobs/first", "trial"):
        assert cli.main(["harbor", "grade", str(tasks / place)]) == 2
        assert "holds results of jobs and no Harbor task" in capsys.readouterr().err


@pytest.mark.sandbox
def test_exit_codes_and_totals_for_real(tmp_path, capsys):
    need_rooms()
    solvable(tmp_path / "tasks" / "good", solve="echo 1 > answer")
    tasks = str(tmp_path / "tasks")
    assert cli.main(["harbor", "grade", tasks]) == 0
    solvable(tmp_path / "tasks" / "half", solve="echo 0.5 > answer")
    folder(tmp_path / "tasks" / "refused", "[task]\nname = 'no-org'\n")
    capsys.readouterr()
    out = tmp_path / "job"
    assert cli.main(["harbor", "grade", tasks, "--concurrency", "1", "--job", str(out)]) == 1
    captured = capsys.readouterr()
    tasks_of = [json.loads(line)["task"] for line in captured.out.splitlines()]
    assert tasks_of == ["good", "half", "refused"]
    ends = [
        "invalid: 1 (refused 1)",
        "below 1: half",
        "no valid reward: refused",
        "in_process): good, half",
    ]
    for line, end in zip(captured.err.splitlines()[-4:], ends, strict=True):
        assert line.endswith(end)
    assert list(out.glob("good__*"))
    (tmp_path / "wrong.sh").write_text("echo 0 > answer")
    measured = ["harbor", "grade", tasks, "--script", str(tmp_path / "wrong.sh")]
    assert cli.main([*measured, "--json"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.sandbox
def test_a_line_says_why_a_task_earns_less_than_1(tmp_path, capsys):
    need_rooms()
    tasks = tmp_path / "tasks"
    solvable(tasks / "good", solve="echo 1 > answer")
    wrong = solvable(tasks / "wrong", solve="echo 0 > answer")
    (wrong / "tests" / "test.sh").write_text("echo 3 of 4; echo 0 > /logs/verifier/reward.txt\n")
    unbuilt = solvable(tasks / "unbuilt", solve="true")
    (unbuilt / "environment" / "Dockerfile").write_text("FROM python:3.12-slim\nRUN exit 7\n")
    folder(tasks / "refused", "[task]\nname = 'no-org'\n")
    assert cli.main(["harbor", "grade", str(tasks), "--environment", "rooms"]) == 1
    captured = capsys.readouterr()
    lines = {line["task"]: line for line in map(json.loads, captured.out.splitlines())}
    assert lines["good"]["reason"] is None
    assert lines["wrong"]["reason"] == "3 of 4"
    assert "Dockerfile:2: RUN" in lines["unbuilt"]["reason"]
    assert "no-org" in lines["refused"]["reason"]
    assert "invalid: 2 (" in captured.err and "unbuildable 1" in captured.err
