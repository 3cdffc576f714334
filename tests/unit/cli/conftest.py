"""A fake in the sandbox's place, and files to grade."""

import json

import pytest

from coding_model_project.cli import options
from coding_model_project.data.problems import write_problems
from tests.fakes import FakeSandbox, stdin_problem

PROBLEMS = [
    stdin_problem(("", "1"), id="fake/1", gold=("1",), bad=("2", "3")),
    stdin_problem(("", "2"), id="fake/2", gold=("2",)),
]


@pytest.fixture
def sandbox(monkeypatch):
    """A fake in the embedded sandbox's place."""
    fake = FakeSandbox()
    monkeypatch.setattr(options, "embedded_sandbox", lambda *_, **__: fake)
    return fake


@pytest.fixture
def files(tmp_path):
    write_problems(tmp_path / "p.jsonl", PROBLEMS)
    rows = [("fake/2", "2"), ("fake/1", "2"), ("fake/1", "1"), ("fake/1", " "), ("fake/1", "1")]
    lines = [json.dumps({"problem_id": p, "completion": c}) for p, c in rows]
    (tmp_path / "c.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path
