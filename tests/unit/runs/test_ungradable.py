"""Samples that could not be judged are kept with their reason, whichever process writes them."""

from __future__ import annotations

import re
import socket

import pytest

from coding_model_project.errors import DataError, SandboxError
from coding_model_project.runs.rollouts import (
    Ungradable,
    last_reason,
    note,
    read_attempt,
    read_ungradable,
    reason_of,
)
from coding_model_project.runs.starting import end_attempt
from coding_model_project.verl_ext.rewards.judging import JudgePool, leaving_out
from coding_model_project.verl_ext.trainers.guards import Outages
from tests.hosts import host, needs_namespaces
from tests.text_cases import sources
from tests.unit.runs.test_folder import start

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


TRUTH = {"ground_truth": "a/1"}
ROW = {"global_steps": 3, "reward_model": TRUTH, "uid": "u", "session_id": 0}


def test_what_cannot_be_noted_does_not_hide_why(tmp_path, capsys):
    (tmp_path / "ungradable.jsonl").mkdir()  # which no user may open for writing
    with pytest.raises(SandboxError, match="the judge is down"), leaving_out(tmp_path, ROW):
        raise SandboxError("the judge is down")
    said = capsys.readouterr().err
    assert "ungradable.jsonl could not take (Is a directory)" in said
    assert said.endswith(": SandboxError: the judge is down\n")


def test_a_full_disk_below_the_judge_is_noted_with_its_node(tmp_path):
    with pytest.raises(SandboxError, match="No space left"), leaving_out(tmp_path, ROW):
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
