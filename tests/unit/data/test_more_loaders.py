"""TACO, APPS, KodCode, SYNTHETIC-1, rows made for verl, and a user's own columns."""

import json

import pytest

from coding_model_project.cli import main
from coding_model_project.data.governance import role
from coding_model_project.data.loaders import LOADERS, load
from coding_model_project.data.loaders.base import Unusable
from coding_model_project.data.loaders.modules import pieces
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.types import Asserts, Call, Stdin
from tests.tables import tables
from tests.unit.data.rows import published as rows
from tests.unit.data.test_loaders import one, written

CASES = tables("modules")


def test_kodcode(tmp_path):
    problem = one(tmp_path, "kodcode_train", rows.KODCODE)
    assert (problem.id, problem.entry_point) == ("kodcode/Algorithm_1_I", "halve")
    assert "def halve(x):" in problem.statement
    assert problem.difficulty == 2
    first, second = (test.input for test in problem.tests)
    assert isinstance(first, Asserts)
    assert "solution" not in first.source
    assert "pytest.main" not in first.source
    names = {}
    exec(problem.gold[0], names)
    for test in (first, second):
        exec(test.source, {"halve": names["halve"]})
        with pytest.raises(AssertionError):
            exec(test.source, {"halve": lambda x: 7})
    older = {**rows.KODCODE, "test_code": rows.KODCODE["test"]}
    del older["test"]
    assert one(tmp_path, "kodcode_train", older).tests == problem.tests


@pytest.mark.sandbox
def test_kodcode_is_judged(tmp_path, capsys):
    path = written(tmp_path, "kodcode_train.jsonl", rows.KODCODE)
    command = ["data", "preflight", "kodcode_train", "--path", str(path), "--mutants", "2"]
    assert main([*command, "--workers", "1"]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (line["gold_accepted"], line["bad_total"] > 0) == (1, True)
    assert line["bad_rejected"] == line["bad_total"]


@pytest.mark.parametrize(("module", "reason"), CASES["unusable"])
def test_a_module_that_needs_more_than_asserts_is_set_aside(module, reason):
    with pytest.raises(Unusable, match=reason):
        pieces(module)


def test_a_problem_of_several_rows_is_loaded_once(tmp_path):
    row = rows.SYNTHETIC_1_STDIN
    path = written(tmp_path, "rows.jsonl", row, row | {"response_id": "vcp_1_b"})
    loaded = load("synthetic_1", path=path)
    assert len(loaded.problems) == 1
    assert "earlier row" in loaded.set_aside[0].reason


def test_the_role_of_rows_for_verl_goes_by_their_source(tmp_path, capsys):
    row = {**rows.VERL, "data_source": "openai/humaneval"}
    path = written(tmp_path, "train.jsonl", row)
    out = tmp_path / "out"
    assert main(["data", "rows", f"mine={path}", "--out", str(out)]) == 2
    assert "test only" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("name", ["taco", "apps", "kodcode", "synthetic_1"])
def test_what_trains_is_its_train_split_alone(name):
    assert role(name, "train").may_train
    assert not role(name, "test").may_train
    assert not role(name, "unknown").may_train
    assert LOADERS[name].published.licence


def test_a_set_is_a_function_of_the_users(tmp_path, monkeypatch):
    (tmp_path / "my_set.py").write_text(
        "from coding_model_project.types import Problem\n"
        "def problems(name, place, trail):\n"
        "    trail.notes.append('made here')\n"
        "    yield Problem(id=f'{name}/1', split=place.split or 'train', statement='?', tests=())\n"
        "def rows(name, place, trail):\n"
        "    yield {'id': 'mine/1'}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loaded = load("mine", path="my_set:problems", split="valid")
    assert [(one.id, one.split) for one in loaded.problems] == [("mine/1", "validation")]
    assert loaded.notes == ("made here",)
    for wrong in ("no_such_module:problems", "my_set:nothing"):
        with pytest.raises(ConfigError, match=f"mine={wrong}: .*; use package.module:function"):
            load("mine", path=wrong)
    with pytest.raises(DataError, match="my_set:rows: yields a dict: expected Problem or SetAside"):
        load("mine", path="my_set:rows")


# ── --map ─────────────────────────────────────────────────────────────────────────────────────────

ADD = {"question": "Define add(a, b).", "answer": "def add(a, b):\n    return a + b\n"}


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ([{"call": "add", "args": [1, 2], "expected": 3}], Call(function="add", args=(1, 2))),
        (
            json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}),
            Call(function="add", args=(1, 2)),
        ),
        ({"input": [[1, 2]], "output": [3]}, Call(function="add", args=(1, 2))),
        ("assert add(1, 2) == 3", Asserts(source="assert add(1, 2) == 3")),
    ],
    ids=str,
)
def test_columns_of_other_names_and_the_usual_forms_of_tests(tmp_path, tests, expected):
    path = written(tmp_path, "train.jsonl", {**ADD, "cases": tests, "colour": 1})
    columns = {"statement": "question", "tests": "cases", "gold": "answer"}
    (problem,) = load("mine", path=path, columns=columns).problems
    assert (problem.id, problem.split) == ("mine/1", "train")
    assert problem.statement == ADD["question"]
    assert problem.gold == (ADD["answer"],)
    assert problem.tests[0].input == expected


def test_a_row_that_cannot_be_mapped_is_counted_with_its_reason(tmp_path):
    path = written(
        tmp_path,
        "train.jsonl",
        *({**ADD, "cases": kept} for kept in (["assert add(1, 2) == 3"], [], [1], {"a": 1}, "[1")),
        {**ADD, "cases": ["assert True"], "difficulty": "unheard of"},
    )
    columns = {"statement": "question", "tests": "cases"}
    loaded = load("mine", path=path, columns=columns)
    assert [problem.difficulty for problem in loaded.problems] == [None, None]
    empty, number, keys, broken = (aside.reason for aside in loaded.set_aside)
    assert empty == "no hidden tests"
    assert "unknown form" in number
    assert "an object with a" in keys
    assert "not JSON" in broken
    path = written(tmp_path, "r.jsonl", {**ADD, "cases": ["assert True"], "level": "unheard of"})
    loaded = load("mine", path=path, columns={**columns, "difficulty": "level"})
    assert "field 'difficulty'" in loaded.set_aside[-1].reason, "a named column must fit"


def test_the_columns_of_a_public_set_may_have_other_names(tmp_path):
    path = written(tmp_path, "r.parquet", {"q": "How many?", "answer": "#### 1"})
    assert len(load("gsm8k_test", path=path, columns={"question": "q"}).problems) == 1
    with pytest.raises(DataError, match="--map question=problem"):
        load("gsm8k_test", path=written(tmp_path, "r.jsonl", {"problem": "?", "answer": "#### 1"}))


@pytest.mark.parametrize(("options", "says"), CASES["wrong_maps"])
def test_a_wrong_map_is_one_line(tmp_path, capsys, options, says):
    path = written(tmp_path, "r.jsonl", ADD)
    assert main(["data", "preflight", "mine", "--path", str(path), *options]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_the_map_that_a_refusal_advises_has_the_solutions_and_works(tmp_path, capsys):
    row = {"prompt": "Define f(x).", "test": "assert f(1) == 1", "solution": "def f(x): return x"}
    path = written(tmp_path, "r.jsonl", row)
    assert main(["data", "preflight", str(path)]) == 2
    advised = capsys.readouterr().err.split("coding_model_project ")[1].split()
    assert "gold=solution" in advised
    assert main(advised) == 0


@pytest.mark.parametrize("command", ["preflight", "rows", "dedup"])
def test_every_command_that_reads_a_data_set_maps_columns(tmp_path, capsys, command):
    path = written(tmp_path, "train.jsonl", {**ADD, "cases": ["assert add(1, 2) == 3"]})
    out = [] if command == "preflight" else ["--out", str(tmp_path / "out")]
    given = ["data", command, f"mine={path}", *out]
    assert main([*given, "--map", "statement=text"]) == 2
    assert "no column 'text'" in capsys.readouterr().err
    mapped = ["--map", "statement=question", "--map", "tests=cases"]
    if command == "dedup":
        assert main([*given, *mapped, "--against", "mine", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["kept"] == 1
    if command == "rows":
        assert main([*given, *mapped, "--no-check"]) == 0
        assert main(["data", "rows", str(path), *out, *mapped, "--no-check"]) == 0


CSV = """\ufeffid,statement,tests,gold
,"Define f(x), which
adds 1.",assert f(1) == 2,"def f(x):
    return x + 1"
"""


def test_a_file_without_ids_whose_columns_have_the_fields_names_needs_no_map(tmp_path):
    path = tmp_path / "mine_train.csv"
    path.write_text(CSV, "utf-8")
    (problem,) = load("mine", path=path).problems
    assert (problem.statement, problem.split) == ("Define f(x), which\nadds 1.", "train")
    assert problem.gold == ("def f(x):\n    return x + 1",)
    row = {"statement": problem.statement, "tests": "assert f(1) == 2"}
    assert load("mine", path=written(tmp_path, "mine.jsonl", row)).problems[0].id == "mine/1"


@pytest.mark.parametrize("mark", [";", "\t"])
def test_cells_may_be_apart_as_spreadsheets_write_them(tmp_path, mark):
    path = tmp_path / "mine.csv"
    path.write_text(mark.join(("statement", "tests")) + "\n" + mark.join(("Add, f.", "assert f()")))
    assert load("mine", path=path).problems[0].statement == "Add, f."


def test_inputs_and_outputs_in_columns_of_their_own(tmp_path, capsys):
    path = tmp_path / "mine.csv"
    path.write_text("question,input,expected_output,solution\nAdd.,1 2,3,print(3)\n")
    assert main(["data", "preflight", str(path)]) == 2
    assert "--map tests=. --map gold=solution" in capsys.readouterr().err
    (problem,) = load("mine", path=path, columns={"statement": "question", "tests": "."}).problems
    assert [(test.input, test.expected) for test in problem.tests] == [(Stdin("1 2"), "3")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CSV + "a,b,c,d,e\n", "mine.csv:5: more cells than the 4 columns"),
        (CSV + '1,"open', "mine.csv:5: unreadable CSV"),
        ("statement,tests,tests\na,b,c\n", "mine.csv:1: .*'tests'"),
        ("statement,tests\nfür,b\n", "mine.csv:.*iconv"),
    ],
)
def test_a_damaged_csv_file_names_the_line(tmp_path, text, says):
    (tmp_path / "mine.csv").write_text(text, "latin-1" if "ü" in text else "utf-8")
    with pytest.raises(DataError, match=says):
        load("mine", path=tmp_path / "mine.csv")


def test_map_needs_a_file():
    with pytest.raises(ConfigError, match="pass mbpp=PATH"):
        load("mbpp", columns={"text": "question"})
