"""Problems read by id: the index beside a file, and when it is made anew."""

import gc

import orjson
import pytest

from coding_model_project.data.problems import ProblemFile, problem_line, write_problems
from coding_model_project.errors import DataError
from coding_model_project.grading.cache import PerProblem
from coding_model_project.types import Problem, Stdin, Test


def problem(number, expected="3"):
    tests = (Test(input=Stdin("1 2"), expected=expected),)
    return Problem(id=f"mine/{number}", split="train", statement="Add.", tests=tests)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("CODING_DATA_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "data" / "problems.jsonl"
    write_problems(path, map(problem, range(9)))
    return path


def test_problems_are_read_by_id_in_the_order_of_the_file(path):
    file = ProblemFile(path)
    assert file["mine/7"] == problem(7)
    assert list(file) == [f"mine/{n}" for n in range(9)]
    assert tuple(file.values()) == tuple(map(problem, range(9)))
    assert (len(file), file.get("mine/10")) == (9, None)


@pytest.mark.slow
def test_one_object_while_a_problem_is_in_use_and_none_afterwards(path):
    file, calls = ProblemFile(path), []
    digest = PerProblem(lambda one: calls.append(one.id) or len(calls))
    one = file["mine/1"]
    assert file["mine/1"] is one
    assert (digest(one), digest(file["mine/1"])) == (1, 1)
    del one
    gc.collect()
    assert digest(file["mine/1"]) == 2


@pytest.mark.parametrize("written", [True, False])
def test_a_file_that_was_written_by_hand_or_changed_gets_an_index(path, written):
    index = path.with_name("problems.jsonl.index")
    if not written:
        index.unlink()
    path.write_bytes(b"\n" + problem_line(problem(20, "4")) + b"\n\n" + problem_line(problem(21)))
    assert list(ProblemFile(path).values()) == [problem(20, "4"), problem(21)]
    made = index.stat().st_ino
    assert ProblemFile(path)["mine/21"] == problem(21)
    assert index.stat().st_ino == made


def test_a_read_only_folder_has_its_index_in_the_cache(path, tmp_path, monkeypatch):
    def refused(self, data):
        if self.parent == path.parent:
            raise PermissionError(13, "Permission denied", str(self))
        with self.open("wb") as file:
            return file.write(data)

    path.with_name("problems.jsonl.index").unlink()
    monkeypatch.setattr("pathlib.Path.write_bytes", refused)
    assert len(ProblemFile(path)) == 9
    assert list(path.parent.iterdir()) == [path]
    assert ProblemFile(path)["mine/3"] == problem(3)
    assert len(list((tmp_path / "cache" / "indices").iterdir())) == 1


def test_bad_lines_name_themselves(path):
    with path.open("ab") as file:
        file.write(orjson.dumps({"id": "mine/30", "split": "train"}) + b"\n")
    with pytest.raises(DataError, match=r"problems.jsonl:10: "):
        ProblemFile(path)
    path.write_bytes(problem_line(problem(1)) * 2)
    with pytest.raises(DataError, match=r":2: id 'mine/1' occurs twice"):
        ProblemFile(path)


@pytest.mark.slow
def test_a_file_that_is_replaced_stays_as_it_was_opened_and_one_changed_in_place_is_an_error(path):
    file = ProblemFile(path)
    write_problems(path, [problem(5, "5")])
    assert file["mine/5"] == problem(5)
    gc.collect()
    file = ProblemFile(path)
    path.write_bytes(problem_line(problem(6, "6")))
    with pytest.raises(DataError, match="has changed"):
        file["mine/5"]
