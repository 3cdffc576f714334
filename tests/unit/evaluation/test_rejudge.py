"""`eval rejudge`: evaluations and rollouts judged again, what changed by cause, and what is refused."""

import json
import re
from dataclasses import replace
from functools import partial

import orjson
import pytest

import coding_model_project.cli as cli
from coding_model_project.errors import SandboxError
from coding_model_project.evaluation.changes import Cause, Stored, cause_of, judge_again
from coding_model_project.evaluation.plan import Sample
from coding_model_project.evaluation.results import Generated, Result, read_evaluation, to_line
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.brief import program_hash
from coding_model_project.grading.judge import open_judge
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.readings import CountedBy
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import Execution, Status
from tests.fakes import FakeSandbox, stdin_problem
from tests.synthetic_evaluations import result
from tests.synthetic_runs import rollout as made_rollout
from tests.tables import tables
from tests.unit.evaluation.test_evaluate import Writer, config, run

CASES = tables("evaluation")

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _judged_by_a_fake(monkeypatch):
    """The command starts the embedded sandbox; here its programs are their own output."""
    monkeypatch.setattr(
        "coding_model_project.grading.judge.make_sandbox", lambda config: FakeSandbox()
    )
    monkeypatch.setenv("COLUMNS", "160")


def evaluated(tmp_path, problems, name="run", seed=1):
    """A folder of a finished evaluation."""
    run(config(problems, tmp_path / name, n=2, seed=seed), Writer())
    return tmp_path / name


def by_an_older_grader(folder, *edits):
    """The same evaluation as if grader 1 had judged it.

    Args:
        edits: sample's place in results.jsonl, and fields of its result that were others.
    """
    info = json.loads((folder / "run_info.json").read_text())
    info["protocol"] |= {"grader_version": "1", "hash": "of grader 1"}
    (folder / "run_info.json").write_text(json.dumps(info))
    rows = [orjson.loads(line) for line in (folder / "results.jsonl").open("rb")]
    for place, fields in edits:
        rows[place] |= fields
    (folder / "results.jsonl").write_bytes(b"".join(to_line(Result(**row)) for row in rows))
    return rows


def results_of(folder):
    return {(r.problem, r.sample): (r.passed, r.error) for r in read_evaluation(folder).results}


def test_an_evaluation_has_the_numbers_of_todays_grader_and_keeps_the_old_ones(
    problems, tmp_path, capsys
):
    run, whole = (evaluated(tmp_path, problems, name) for name in ("run", "whole"))
    accepted = [i for i, r in enumerate(read_evaluation(run).results) if r.passed]
    rows = by_an_older_grader(
        run,
        (accepted[0], {"passed": False, "error": "no_code", "program": None}),
        (accepted[1], {"passed": False, "error": "wrong_answer"}),
        (accepted[2], {"passed": False, "error": "timeout"}),
        (accepted[3], {"passed": None, "ungradable": "SandboxError: down"}),
    )
    assert cli.main(["eval", "compare", str(run), str(whole)]) == 2
    said = capsys.readouterr().err
    assert f"eval rejudge {run}" in said

    assert cli.main(["eval", "rejudge", str(run), "--dry-run"]) == 0
    dry = capsys.readouterr().out
    assert json.loads((run / "run_info.json").read_text())["protocol"]["grader_version"] == "1"
    assert cli.main(["eval", "rejudge", str(run)]) == 0
    said = capsys.readouterr().out
    assert said == dry
    assert f"12 samples judged by grader {GRADER_VERSION} (before: 1); 4 have another" in said
    for cause in ("program", "rules", "limits", "no_verdict"):
        assert re.search(rf"^{cause} +1 +0 +0 ", said, re.MULTILINE), said
    gone = rows[accepted[0]]
    assert f"toy {gone['problem']} sample {gone['sample']}: no_code → accepted (program)" in said

    assert results_of(run) == results_of(whole)
    now, other = (json.loads((f / "metrics.json").read_text()) for f in (run, whole))
    assert now["toy"]["pass@k"] == other["toy"]["pass@k"]
    assert read_evaluation(run).protocol_hash == read_evaluation(whole).protocol_hash
    kept = run / "before_rejudge" / "1"
    assert [orjson.loads(line) for line in (kept / "results.jsonl").open("rb")] == rows
    history = json.loads((run / "run_info.json").read_text())["rejudged"]
    assert [(one["grader_before"], one["changed"]) for one in history] == [("1", 4)]
    assert cli.main(["eval", "compare", str(run), str(whole)]) == 0

    capsys.readouterr()
    assert cli.main(["eval", "rejudge", str(run), "--json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)
    assert (again["changes"], again["samples"]) == ([], 12)


def test_graders_are_never_mixed_even_by_force(problems, tmp_path, capsys):
    run, whole = (evaluated(tmp_path, problems, name) for name in ("run", "whole"))
    by_an_older_grader(run)
    for command in (["compare", "--force"], ["budget"]):
        assert cli.main(["eval", *command, str(run), str(whole)]) == 2
        assert "eval rejudge" in capsys.readouterr().err


def test_a_program_whose_outcome_changes_from_run_to_run_is_not_the_graders_doing(monkeypatch):
    runs = iter(range(10))
    flaky = FakeSandbox(
        answer=lambda *_: Execution(status=Status.finished, stdout=str(next(runs) % 2))
    )
    monkeypatch.setattr("coding_model_project.grading.judge.make_sandbox", lambda config: flaky)
    problem = stdin_problem(("", "0"), id="toy/0")
    stored = Stored(
        sample=Sample("toy", problem, 0, 0),
        generated=Generated(
            dataset="toy", problem="toy/0", sample=0, seed=0, completion="x", tokens=1,
            truncated=False, seconds=0.0, at=0.0,
        ),
        before=judged(passed=False, error="wrong_answer", program=program_hash("x"), n_tests=1),
        name="0",
    )  # fmt: skip
    opened = partial(open_judge, SandboxConfig(), style=PromptStyle.bare, stop_early=False)
    how = {"stop_early": False, "rule": CountedBy.ours, "grader_before": "1"}
    _, (change,) = judge_again([stored], opened, **how)
    assert (change.before, change.after) == ("wrong_answer", "accepted")
    assert change.cause is Cause.unstable


def judged(n_tests=2, sandbox="s", **fields):
    plain = {"passed": True, "error": None, "program": "p"} | fields
    verdict = {"n_tests": n_tests, "sandbox": sandbox, "error": plain["error"]}
    return replace(result("toy", "toy/0", 0, True), verdict=verdict, **plain)


FAILED = {"passed": False, "error": "wrong_answer"}


@pytest.mark.parametrize(("before", "after", "graders", "cause"), CASES["causes"])
def test_the_cause_is_the_first_that_holds(before, after, graders, cause):
    found = cause_of(judged(**before), judged(**after), graders=(graders[0], graders[1]))
    assert found == cause
    assert found.meaning


def test_an_outage_changes_no_verdict(problems, tmp_path, monkeypatch, capsys):
    run = evaluated(tmp_path, problems)
    before = (run / "results.jsonl").read_bytes()
    down = FakeSandbox(failures=10_000)
    monkeypatch.setattr("coding_model_project.grading.judge.make_sandbox", lambda config: down)
    assert cli.main(["eval", "rejudge", str(run)]) == SandboxError.exit_code
    assert "nothing was written; run the same command again" in capsys.readouterr().err
    assert (run / "results.jsonl").read_bytes() == before


# ── what cannot be judged again ───────────────────────────────────────────────────────────────────


def refused(capsys, *arguments):
    capsys.readouterr()
    assert cli.main(["eval", "rejudge", *map(str, arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_problems_that_have_changed_are_refused_or_forced(problems, tmp_path, capsys):
    run = evaluated(tmp_path, problems)
    text = problems.read_text()
    problems.write_text(text.replace('"statement":"5"', '"statement":"five"'))
    assert "the problems of toy have changed since the evaluation" in refused(capsys, run)
    assert cli.main(["eval", "rejudge", str(run), "--force"]) == 0
    assert "--force judges with the current ones" in capsys.readouterr().out
    problems.unlink()
    assert "toy.jsonl" in refused(capsys, run)
    (tmp_path / "moved.jsonl").write_text(text)
    moved = f"toy={tmp_path / 'moved.jsonl'}"
    assert cli.main(["eval", "rejudge", str(run), "--dataset", moved, "--force"]) == 0


def test_runs_without_what_it_takes_are_refused_in_one_line(problems, tmp_path, capsys):
    run = evaluated(tmp_path, problems)
    assert "no stored completions" in refused(capsys, tmp_path)
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").unlink()
    assert "--dataset toy=PATH" in refused(capsys, run)
    (run / "config.yaml").write_text(config)
    info = json.loads((run / "run_info.json").read_text())
    older = info | {"protocol": {"name": "greedy", "hash": "1"}}
    (run / "run_info.json").write_text(json.dumps(older))
    assert "incomplete protocol" in refused(capsys, run)
    (run / "run_info.json").write_text(json.dumps(info))
    (run / "completions.jsonl").unlink()
    assert "nothing to judge without completions.jsonl" in refused(capsys, run)


# ── rollouts of trainings ─────────────────────────────────────────────────────────────────────────


def rollout(number, completion, error, **fields):
    verdict = {
        "error": error, "n_tests": 2, "sandbox": "s", "program": program_hash(completion),
    }  # fmt: skip
    plain = {
        "problem": f"toy/{number}", "sample": f"s{number}", "completion": completion,
        "prompt": f"user {number} assistant", "verdict": verdict,
    }  # fmt: skip
    row = made_rollout(**plain | fields)
    return row if fields.get("verdict") != {} else row | {"verdict": {}}


def trained(tmp_path, problems, *rows):
    folder = tmp_path / "grpo"
    folder.mkdir()
    keys = f"prompt: bare, problems: ['{problems}'], reward: {{kind: dense}}"
    (folder / "config.yaml").write_text(f"coding: {{{keys}}}\n")
    (folder / "run.json").write_text(json.dumps({"grader_version": "1"}))
    lines = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    (folder / "rollouts.jsonl").write_bytes(lines)
    return folder


def test_a_trainings_rollouts_are_judged_and_stay_as_they_are(problems, tmp_path, capsys):
    repaired = {"extra": {"attempts": [{"completion": "no"}, {"completion": "2"}]}}
    in_a_shell = {"extra": {"ending": "done", "replies": []}}
    run = trained(
        tmp_path,
        problems,
        rollout(0, "0", None),
        rollout(1, "1", "wrong_answer"),
        rollout(2, "no, told of a test, 2", "wrong_answer", **repaired),
        rollout(3, "wrong", None, split="validation"),
        rollout(4, "…", None, **in_a_shell),
    )
    before = (run / "rollouts.jsonl").read_bytes()
    assert cli.main(["eval", "rejudge", str(run)]) == 0
    said = capsys.readouterr().out
    assert "4 samples judged by grader" in said
    assert "not judged: 1 shell episodes" in said
    assert re.search(r"^train +3 +33.3% +100.0%$", said, re.MULTILINE), said
    assert re.search(r"^validation +1 +100.0% +0.0%$", said, re.MULTILINE), said
    assert (run / "rollouts.jsonl").read_bytes() == before
    changes = [json.loads(line) for line in (run / "rejudged.jsonl").open()]
    assert {(one["problem"], one["before"], one["after"]) for one in changes} == {
        ("toy/1", "wrong_answer", "accepted"),
        ("toy/2", "wrong_answer", "accepted"),
        ("toy/3", "accepted", "wrong_answer"),
    }
    assert json.loads((run / "rejudged.json").read_text())["grader_before"] == "1"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "user another question"}, "the prompt of toy/1 (step 1) lacks"),
        ({"problem": "toy/77"}, "problem toy/77 is missing"),
        ({"verdict": {}}, "its verdict or answer was not stored"),
    ],
)
def test_rollouts_that_do_not_fit_are_refused_by_name(row, says, problems, tmp_path, capsys):
    run = trained(tmp_path, problems, rollout(1, "1", None, **row))
    code = cli.main(["eval", "rejudge", str(run)])
    (line,) = capsys.readouterr().err.splitlines()
    assert code in (2, 3)
    assert says in line
