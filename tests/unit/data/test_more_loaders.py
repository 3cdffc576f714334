"""TACO, APPS, KodCode, SYNTHETIC-1, rows made for verl, and a user's own columns."""

import json

import pytest

from coding_model_project.cli import main
from coding_model_project.data.governance import role
from coding_model_project.data.loaders import LOADERS, load
from coding_model_project.data.loaders.base import Unusable
from coding_model_project.data.loaders.modules import pieces
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.types import Asserts, Call, Stdin, Test
from tests.unit.data.rows import published as rows
from tests.unit.data.test_loaders import one, written


def calls(problem):
    return [(test.input.function, test.input.args, test.expected) for test in problem.tests]


def asides(folder, name, *content, file="rows.jsonl"):
    return [aside.reason for aside in load(name, path=written(folder, file, *content)).set_aside]


def test_taco(tmp_path):
    problem = one(tmp_path, "taco_train", rows.TACO_STDIN)
    assert (problem.id, problem.split, problem.difficulty) == ("taco/train/0", "train", 3)
    assert problem.tests == (
        Test(input=Stdin("1\n"), expected="2\n"),
        Test(input=Stdin("5\n"), expected="10\n"),
    )
    assert problem.gold == ("print(2 * int(input()))", "n = int(input())\nprint(n + n)")
    assert (problem.limits.cpu_s, problem.limits.memory_mb) == (4.0, 1024)
    assert problem.tags == ("codeforces", "Mathematics")
    problem = one(tmp_path, "taco_train", rows.TACO_CALL)
    assert calls(problem) == [
        ("count", (["a", "b"],), {2: 1}),
        ("count", ([],), {0: 1}),
    ]
    assert problem.entry_point == "count"
    assert "def count(words):" in problem.statement


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"picture_num": "2"}, "image"),
        ({"input_output": ""}, "no hidden tests"),
        ({"input_output": "{}"}, "no hidden tests"),
        ({"input_output": "{'inputs'"}, "not JSON"),
        ({"input_output": '{"inputs": ["1"], "outputs": []}'}, "1 test inputs, but 0 outputs"),
        ({"question": "Print any of them."}, "checker"),
        ({"question": None}, "'question' is not text"),
    ],
)
def test_a_row_of_taco_that_cannot_be_used_is_counted(tmp_path, change, reason):
    (said,) = asides(tmp_path, "taco_train", {**rows.TACO_STDIN, **change})
    assert reason in said


def test_apps(tmp_path):
    problem = one(tmp_path, "apps", rows.APPS_STDIN, "train.jsonl")
    assert (problem.id, problem.split, problem.difficulty) == ("apps/train/17", "train", 2)
    assert problem.tests[0] == Test(input=Stdin("1"), expected="2")
    problem = one(tmp_path, "apps", rows.APPS_CALL, "test.jsonl")
    assert (problem.id, problem.split) == ("apps/test/18", "test")
    assert calls(problem) == [("add", (1, 2), 3), ("add", (3, 4), 7)]


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


IMPORT = "from solution import f\n"


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("def test_f(:", "do not parse"),
        (IMPORT, "no test function"),
        (IMPORT + "import numpy as np\ndef test_f(): ...", "numpy"),
        (IMPORT + "import unittest\nclass TestF(unittest.TestCase): ...", "no test function"),
        (IMPORT + "def helper(): ...\nCASES = [1]", "call nothing"),
        ("def check(candidate):\n    assert candidate(1) == 1", "--map entry_point"),
        ("}\nint main() {", "Python"),
        (IMPORT + "import os\ndef test_f(): assert os.path.exists(f())", "import os"),
        (IMPORT + "class TestF:\n    def test_f(self, tmp_path): ...", "fixtures"),
        (IMPORT + "def test_f(tmp_path): assert f(tmp_path)", "fixtures"),
        (
            IMPORT + "import pytest\n@pytest.mark.parametrize('x', [1])\ndef test_f(x): ...",
            "pytest",
        ),
        (IMPORT + "import pytest\ndef test_f(): assert f() == pytest.approx(1)", "pytest.approx"),
        (IMPORT + "from pytest import approx\ndef test_f(): assert f() == approx(1)", "of pytest"),
        (
            IMPORT + "import pytest\ndef test_f(): pytest.raises(ValueError, f, 1)",
            "function to call",
        ),
        ("import solution\ndef test_f(): assert solution.f()", "as a module"),
    ],
)
def test_a_module_that_needs_more_than_asserts_is_set_aside(module, reason):
    with pytest.raises(Unusable, match=reason):
        pieces(module)


def test_synthetic_1(tmp_path):
    problem = one(tmp_path, "SYNTHETIC-1", rows.SYNTHETIC_1_STDIN)
    assert (problem.id, problem.split) == ("synthetic_1/vcp_1", "train")
    assert problem.statement == "Double a number."
    assert problem.gold == ("print(2 * int(input()))\n",)
    assert problem.tests == (Test(input=Stdin("1\n"), expected="2\n"),)
    problem = one(tmp_path, "synthetic_1", rows.SYNTHETIC_1_CALL)
    assert calls(problem) == [("add", (1, 2), 3), ("add", (3, 4), 7)]
    assert "Name the function `add`." in problem.statement


def test_other_rows_of_synthetic_1_are_set_aside_and_a_problem_is_loaded_once(tmp_path):
    row = rows.SYNTHETIC_1_STDIN
    other = {**row, "problem_id": "vcp_3"}
    empty = json.dumps({"language": "rust", "test_cases": []})
    cobol = json.dumps({"language": "cobol", "test_cases": [{"input": "1", "output": "1"}]})
    reasons = asides(
        tmp_path,
        "synthetic_1",
        row,
        {**row, "response_id": "vcp_1_b"},
        {**other, "task_type": "verifiable_math"},
        {**other, "verification_info": empty},
        {**other, "verification_info": cobol},
        {**other, "verification_info": "none"},
    )
    parts = ("earlier row", "verifiable_math", "no hidden tests", "programs in cobol", "no tests")
    assert all(part in reason for part, reason in zip(parts, reasons, strict=True))


def test_function_calls_of_prime_intellect_in_deepcoder(tmp_path):
    problem = one(tmp_path, "deepcoder_train", rows.DEEPCODER_PRIME)
    assert calls(problem) == [("add", (1, 2), 3)]
    tests = json.dumps([{"type": "function_call", "input": [1], "output": [1]}])
    (said,) = asides(tmp_path, "deepcoder_train", {**rows.DEEPCODER_PRIME, "tests": tests})
    assert "name is missing" in said


@pytest.mark.parametrize("file", ["train.parquet", "rows.jsonl", "rows.json"])
def test_rows_for_verl_by_any_name(tmp_path, file):
    path = written(tmp_path, file, rows.VERL)
    for name in ("verl", "mine"):
        (problem,) = load(name, path=path).problems
        assert problem.id == f"{name}_taco/train/0"
        assert problem.tests == (Test(input=Stdin("1\n"), expected="2\n"),)


def test_calls_answers_and_asserts_of_verl_rows(tmp_path):
    problem = one(tmp_path, "verl", rows.VERL_CALL)
    assert calls(problem) == [("add", (1, 2), 3), ("add", ({1: 2}, "a"), [4])]
    problem = one(tmp_path, "verl", rows.VERL_MATH)
    assert (problem.id, problem.graded_by) == ("verl_openai_gsm8k/train/0", "math")
    truth = {"assert_case": ["assert double(2) == 4"]}
    row = {**rows.VERL, "reward_model": {"style": "rule", "ground_truth": truth}}
    problem = one(tmp_path, "verl", {**row, "prompt": "Define double(x)."})
    assert problem.tests[0].input == Asserts(source="assert double(2) == 4")
    assert problem.statement == "Define double(x)."


def test_rows_that_only_name_a_problem_say_where_its_tests_are(tmp_path):
    row = {**rows.VERL, "reward_model": {"style": "rule", "ground_truth": "mbpp/601"}}
    (said,) = asides(tmp_path, "verl", row)
    assert "problems.jsonl" in said


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
        ({"input": ["1 2"], "output": ["3"]}, Stdin("1 2")),
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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "row has columns question, answer"),
        (["--map", "statement=question"], "--map tests=COLUMN"),
        (["--map", "statement=text"], "no column 'text'; the row has columns question"),
        (["--map", "statement"], "expected FIELD=COLUMN"),
        (["--map", "colour=question"], "no such field"),
        (["--map", "tests=a", "--map", "tests=b"], "mapped twice"),
    ],
)
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


@pytest.mark.parametrize("command", ["preflight", "rows", "dedup", "select-tests"])
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


def test_map_needs_a_file():
    with pytest.raises(ConfigError, match="pass mbpp=PATH"):
        load("mbpp", columns={"text": "question"})
