"""Verdicts that a journal keeps: asked for once, of the same problem, program and judge only."""

from dataclasses import replace

import pytest

from coding_model_project.errors import ConfigError, DataError, SandboxError
from coding_model_project.evaluation.journal import KeptGrader, kept_results
from coding_model_project.grading.cache import CachedGrader
from coding_model_project.grading.execution import ExecutionGrader
from tests.fakes import FakeSandbox, stdin_problem

PROBLEM = stdin_problem(("", "1"), ("", "2"))


def grader(sandbox, kept, settings="s"):
    inner = CachedGrader(ExecutionGrader(sandbox, stop_early=False), bare=True)
    return KeptGrader(inner, kept, settings)


async def test_a_kept_verdict_is_the_one_that_was_given(tmp_path):
    with kept_results(tmp_path / "k.jsonl") as kept:
        first = await grader(FakeSandbox(), kept).grade(PROBLEM, "1")
    sandbox = FakeSandbox()
    with kept_results(tmp_path / "k.jsonl") as kept:
        again = grader(sandbox, kept)
        assert await again.grade(PROBLEM, "1") == first
        assert not sandbox.calls
        await again.grade(PROBLEM, "2")
        await again.grade(replace(PROBLEM, atol=0.5), "1")
        await grader(sandbox, kept, "another judge").grade(PROBLEM, "1")
        assert len(sandbox.calls) == 3


async def test_an_outage_is_not_kept(tmp_path):
    with kept_results(tmp_path / "k.jsonl") as kept, pytest.raises(SandboxError):
        await grader(FakeSandbox(failures=1), kept).grade(PROBLEM, "1")
    assert not (tmp_path / "k.jsonl").read_bytes()


def test_a_journal_has_one_writer_and_damage_is_named(tmp_path):
    path = tmp_path / "k.jsonl"
    with (
        kept_results(path),
        pytest.raises(ConfigError, match="another command is writing to it"),
        kept_results(path),
    ):
        pass
    path.write_text('{"key": "a"}\n')
    with pytest.raises(DataError, match="line 1: damaged"), kept_results(path):
        pass
    path.write_text('{"key": "a", "result": {}}\n{"key": "b", "re')  # a kill in a write
    with kept_results(path) as kept:
        assert list(kept.known) == ["a"]
