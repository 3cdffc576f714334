"""Problems whose programs are their own output."""

import pytest

from coding_model_project.data.problems import write_problems
from tests.fakes import stdin_problem


@pytest.fixture
def problems(tmp_path):
    """A file of six problems: the accepted program is the problem's number."""
    found = [
        stdin_problem(("", str(i)), ("x", str(i)), id=f"toy/{i}", statement=str(i))
        for i in range(6)
    ]
    write_problems(tmp_path / "toy.jsonl", found)
    return tmp_path / "toy.jsonl"
