"""No sample is lost or counted twice, whatever cuts the writing short."""

from __future__ import annotations

import gzip
import json
import re
import socket
from dataclasses import replace

import pytest

from coding_model_project.errors import DataError, SandboxError
from coding_model_project.grading.brief import brief
from coding_model_project.runs import rollouts
from coding_model_project.runs.overview import read_metrics, series, total
from coding_model_project.runs.rollouts import (
    Rollout,
    RolloutWriter,
    Ungradable,
    end_last_line,
    last_reason,
    note,
    read_all_rollouts,
    read_attempt,
    read_rollouts,
    read_ungradable,
    reason_of,
)
from coding_model_project.runs.starting import end_attempt
from coding_model_project.types import Call, ErrorType, Stdin, Test, TestResult, Verdict
from coding_model_project.verl_ext.rewards.judging import JudgePool, leaving_out
from coding_model_project.verl_ext.trainers.guards import Outages
from tests.hosts import host, needs_namespaces
from tests.text_cases import sources
from tests.unit.runs.test_folder import start

ROW = Rollout(
    step=1, attempt=1, split="train", problem="tinycode/1", sample="a_0", prompt="p",
    completion="c" * 50, tokens=3, reward=1.0, reward_parts={"outcome": 1.0},
    verdict={"error": None, "detail": ""}, generated_at=1.0, graded_at=2.0,
)  # fmt: skip


def write(folder, rows, **options):
    writer = RolloutWriter(folder, **options)
    writer.write(rows)
    writer.close()


def test_a_step_that_is_done_again_counts_once(tmp_path):
    write(tmp_path, [replace(ROW, step=step, reward=0.0) for step in (1, 2, 3)])
    write(tmp_path, [replace(ROW, step=step, attempt=2) for step in (3, 4)])
    read = [(row.step, row.attempt) for row in read_rollouts(tmp_path)]
    assert read == [(1, 1), (2, 1), (3, 2), (4, 2)]
    write(
        tmp_path, [replace(ROW, step=4, attempt=3, split="validation")]
    )  # which is not its training
    assert [row.split for row in read_rollouts(tmp_path)] == ["train"] * 4 + ["validation"]


def test_a_line_cut_by_a_kill_costs_only_itself(tmp_path):
    write(tmp_path, [ROW])
    with (tmp_path / "rollouts.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "attempt": 1, "spl')
    write(tmp_path, [replace(ROW, step=2, attempt=2)])
    assert [row.step for row in read_rollouts(tmp_path)] == [1, 2]


def test_rows_that_cannot_be_made_are_an_error(tmp_path):
    """Such as one that fails to decode, or to become JSON: no later row is written in silence."""
    writer = RolloutWriter(tmp_path)
    writer.write(replace(ROW, tokens=row) for row in (3, object()))
    with pytest.raises(TypeError, match="not JSON serializable"):
        writer.close()


def test_full_files_are_renamed(tmp_path):
    for name in ("rollouts.old.jsonl", "rollouts.0001.copy.jsonl"):
        (tmp_path / name).write_bytes(b"a user's own")
    rows = [replace(ROW, step=step, sample=str(n)) for step in range(6) for n in range(4)]
    for first in range(0, 24, 4):
        write(tmp_path, rows[first : first + 4], rotate_bytes=900)
    full = sorted(tmp_path.glob("rollouts.000?.jsonl"))
    assert [path.name[9:13] for path in full][:2] == ["0001", "0002"]
    assert len(full[0].read_bytes().splitlines()) == 4
    assert list(read_rollouts(tmp_path)) == rows


def test_a_reader_misses_no_row_of_a_run_that_renames_its_file_meanwhile(tmp_path):
    """It has read some of the first file when the plain one is renamed and a new one is begun."""
    rows = [replace(ROW, step=step) for step in range(1, 7)]
    write(tmp_path, rows[:2], rotate_bytes=1)
    write(tmp_path, rows[2:4])
    reading = read_all_rollouts(tmp_path)
    read = [next(reading)]
    write(tmp_path, rows[4:5], rotate_bytes=1)
    write(tmp_path, rows[5:])
    assert read + list(reading) == rows[:5]  # those of when it began, and of the file it had open


def test_a_file_that_is_renamed_before_its_reader_lists_the_full_ones_counts_once(
    tmp_path, monkeypatch
):
    rows = [replace(ROW, step=step) for step in (1, 2, 3)]
    write(tmp_path, rows[:1], rotate_bytes=1)
    write(tmp_path, rows[1:])
    list_full = rollouts._full_files

    def renamed(folder):
        (folder / "rollouts.jsonl").rename(folder / "rollouts.0002.jsonl")
        return list_full(folder)

    monkeypatch.setattr(rollouts, "_full_files", renamed)
    assert list(read_all_rollouts(tmp_path)) == rows


def test_a_new_file_takes_no_name_of_another(tmp_path):
    for step in (1, 2):
        write(tmp_path, [replace(ROW, step=step)], rotate_bytes=1)
    (tmp_path / "rollouts.0001.jsonl").unlink()
    write(tmp_path, [replace(ROW, step=3)], rotate_bytes=1)
    assert [row.step for row in read_rollouts(tmp_path)] == [2, 3]


def test_packed_files_of_an_older_version_are_refused_with_the_remedy(tmp_path):
    write(tmp_path, [ROW])
    packed = tmp_path / "rollouts.0001.jsonl.gz"
    packed.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(DataError, match=r"rollouts\.0001\.jsonl\.gz: packed by an older .*gunzip"):
        list(read_rollouts(tmp_path))


def test_what_cannot_be_written_is_raised(tmp_path):
    writer = RolloutWriter(tmp_path / "not there")
    writer.write([ROW])
    with pytest.raises(OSError, match="not there"):
        writer.close()


def verdict(*results):
    return Verdict(
        problem_id="p", code="x", extraction="fence", results=results, n_tests=2,
        comparison="value", sandbox="fake", grader_version="1",
    )  # fmt: skip


def test_the_failing_test_is_shown_with_its_input():
    tests = [
        Test(input=Call(function="solve", args=(1, "a")), expected=2),
        Test(input=Stdin("x" * 900), expected=""),
    ]
    wrong = TestResult(error=ErrorType.wrong_answer, detail="expected 2, got 3")
    short = brief(verdict(wrong), tests, public_passed=True)
    assert (short["failed_test"], short["input"]) == (0, "solve(1, 'a')")
    assert replace(ROW, verdict=short).failing_test == "solve(1, 'a')\nexpected 2, got 3"
    late = brief(verdict(TestResult(error=None), wrong), tests, public_passed=None)
    assert late["failed_test"] == 1
    assert len(late["input"]) < 600
    good = brief(verdict(*[TestResult(error=None)] * 2), tests, public_passed=True)
    assert (good["error"], good["failed_test"], good["input"]) == (None, None, "")


def test_metrics_count_the_later_value_and_cost_counts_both(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [(1, {"a": 1}), (2, {"a": 2}), (2, {"a": 5}), (2, {"val": 1.5}), (3, {"text": "no"})]
    lines = [json.dumps({"step": step, "data": data}) for step, data in rows]
    path.write_text("\n".join([*lines, '{"step": 4, "da']))
    steps = read_metrics(path)
    assert series(steps, "a") == [(1, 1.0), (2, 5.0)]
    assert steps[2]["val"] == 1.5
    assert total(path, "a") == 8
    assert read_metrics(tmp_path / "none") == {}
    end_last_line(path)
    assert path.read_text().endswith("\n")


# Samples that could not be judged are kept with their reason, whichever process writes them.

SOURCES = sources(__file__)


def lost(folder, *, step=1, host="", reason="x" * 400):
    row = Ungradable(
        step=step, problem="a/1", sample="uid_0", error="SandboxError", reason=reason, at=1.0,
        host=host,
    )  # fmt: skip
    note(folder, row)
    return row


def test_every_row_and_the_last_reason(tmp_path):
    assert last_reason(tmp_path, 0) == ""
    said = [reason_of(SandboxError(f"down\n{step}" + "!" * 9999)) for step in (1, 2)]
    rows = [lost(tmp_path, reason=reason) for reason in said]
    with (tmp_path / "ungradable.jsonl").open("ab") as file:
        file.write(b'{"step": 3, "pro')  # killed
    assert list(read_ungradable(tmp_path)) == rows
    assert last_reason(tmp_path, 0).startswith("SandboxError: down 2!")
    assert len(last_reason(tmp_path, 0)) < 600


def test_steps_that_a_resumed_run_takes_again_have_their_own_samples(tmp_path):
    first = start(tmp_path)
    lost(tmp_path, step=2)
    before = Outages(tmp_path, 0.1)
    assert [row.problem for row in before.lost(lambda row: row.step == 2)] == ["a/1"]
    end_attempt(tmp_path, first, SandboxError("the judge is down"))
    start(tmp_path)
    now = Outages(tmp_path, 0.1)
    assert now.lost(lambda row: row.step == 2) == []
    assert now.why() == "; see the rollout server's errors above"  # not the earlier outage's reason
    lost(tmp_path, step=2)
    assert [row.problem for row in now.lost(lambda row: row.step == 2)] == ["a/1"]
    assert "SandboxError" in now.why()
    assert [row.attempt for row in read_ungradable(tmp_path)] == [1, 2]


NOTE = SOURCES["note"]


@pytest.mark.sandbox
@needs_namespaces
def test_rows_of_several_nodes_are_read_as_one(tmp_path):
    start(tmp_path)  # here, so that rows of this machine have the plain name
    lost(tmp_path, step=2, host=socket.gethostname())
    with host("node-b", NOTE, tmp_path) as b, host("node-c", NOTE, tmp_path) as c:
        assert [process.communicate()[1] for process in (b, c)] == ["", ""]
    names = " ".join(sorted(path.name for path in tmp_path.glob("ungradable*")))
    machines = r"ungradable.node-b-\w{8}.jsonl ungradable.node-c-\w{8}.jsonl"
    assert re.fullmatch(f"ungradable.jsonl {machines}", names)
    assert len(list(read_ungradable(tmp_path))) == 401
    rows = list(read_attempt(tmp_path, 1))
    assert len({row.sample for row in rows if row.step == 1}) == 400
    assert [row.problem for row in rows if row.step == 2] == ["a/1"]
    assert re.fullmatch(r"SandboxError on node-[bc]: (down)+", last_reason(tmp_path, 1))


FULL = SOURCES["full"]


@pytest.mark.sandbox
@needs_namespaces
def test_a_full_disk_costs_the_row_that_did_not_fit_and_no_other(tmp_path):
    with host("node-b", FULL, tmp_path) as process:
        out, err = process.communicate()
    assert out.splitlines() == ["No space left on device", "True"], err


GIVEN = {
    "global_steps": 3, "reward_model": {"ground_truth": "a/1"}, "uid": "u", "session_id": 0,
}  # fmt: skip


def test_what_cannot_be_noted_does_not_hide_why(tmp_path, capsys):
    (tmp_path / "ungradable.jsonl").mkdir()  # which no user may open for writing
    with pytest.raises(SandboxError, match="the judge is down"), leaving_out(tmp_path, GIVEN):
        raise SandboxError("the judge is down")
    said = capsys.readouterr().err
    assert "ungradable.jsonl could not take (Is a directory)" in said
    assert said.endswith(": SandboxError: the judge is down\n")


def test_a_full_disk_below_the_judge_is_noted_with_its_node(tmp_path):
    with pytest.raises(SandboxError, match="No space left"), leaving_out(tmp_path, GIVEN):
        raise OSError(28, "No space left on device", "/tmp/x")
    (row,) = read_ungradable(tmp_path)
    assert row.host == socket.gethostname()
    assert f"node {row.host}" in row.reason and "/tmp/x" in row.reason


def test_a_node_without_the_problems_is_named(tmp_path):
    from coding_model_project.configs.schema import CodingConfig

    path = str(tmp_path / "problems.jsonl")
    named = f"coding.problems={path}: node {socket.gethostname()} cannot read it"
    with pytest.raises(DataError, match=re.escape(named)):
        JudgePool(CodingConfig(problems=[path]))
