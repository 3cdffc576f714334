"""From a row to a problem: prompts, tests and answers in every form, and what is set aside and why."""

import json

import pytest

from coding_model_project.data.loaders import load
from coding_model_project.data.loaders.modules import pieces
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.data.training.rows import rl_rows
from coding_model_project.errors import DataError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import Asserts, Call, Stdin
from tests.tables import tables
from tests.unit.data.test_loaders import written

FORMS = tables("rows")

CASES = {"inputs": ["1 2"], "outputs": ["3"]}
USER = {"role": "user", "content": "Add two numbers."}


def mapped(folder, tests, **more):
    """Return the only problem of a file with these tests, or the reason for setting it aside."""
    row = {"q": "Add two numbers.", "t": tests, **more}
    columns = {"statement": "q", "tests": "t"}
    loaded = load("mine", path=written(folder, "rows.jsonl", row), columns=columns)
    return loaded.problems[0] if loaded.problems else loaded.set_aside[0].reason


@pytest.mark.parametrize("tests", FORMS["scripts"], ids=str)
def test_scripts_are_tested_by_every_form_of_inputs_and_outputs(tmp_path, tests):
    (test,) = mapped(tmp_path, tests).tests
    assert (test.input, test.expected) == (Stdin("1 2"), "3")


@pytest.mark.parametrize(("tests", "more"), FORMS["functions"], ids=str)
def test_functions_are_called(tmp_path, tests, more):
    problem = mapped(tmp_path, tests, **more)
    assert (problem.tests[0].input, problem.tests[0].expected) == (Call("add", (1, 2)), 3)
    assert problem.entry_point == "add"


@pytest.mark.parametrize(("tests", "says"), FORMS["unknown"])
def test_an_unknown_form_says_what_was_seen(tmp_path, tests, says):
    reason = mapped(tmp_path, tests, entry_point="add")
    assert says in reason
    assert says == "no hidden tests" or "no hidden tests" not in reason


RIGHT, WRONG = "def add(a, b):\n    return a + b\n", "def add(a, b):\n    return 7\n"


@pytest.mark.parametrize("module", FORMS["modules"])
def test_what_a_framework_would_call_is_called(module):
    found = pieces(module, programs=(RIGHT,))
    assert found
    for piece in found:
        names: dict = {}
        exec(RIGHT, names)
        exec(piece, names)
        names = {}
        exec(WRONG, names)
        with pytest.raises(AssertionError):
            exec(piece, names)


def test_the_method_of_an_instance_is_checked():
    (piece,) = pieces("def check(candidate):\n    assert candidate(1) == 2\n", "Solution().twice")
    exec(piece, {"Solution": type("Solution", (), {"twice": lambda self, x: 2 * x})})


def test_the_whole_conversation_is_asked_trained_and_stored(tmp_path):
    turns = [
        {"role": "system", "content": "Use Python."},
        USER,
        {"role": "assistant", "content": "print(3)"},
        {"role": "user", "content": [{"type": "text", "text": "Now read them."}]},
    ]
    path = written(tmp_path, "train.jsonl", {"prompt": [*turns], "label": "3"})
    (problem,) = load("mine", path=path).problems
    (row,) = rl_rows([problem], PromptStyle.fenced)
    assert [turn["role"] for turn in row["prompt"]] == ["system", "user", "assistant", "user"]
    assert row["prompt"][0]["content"] == "Use Python."
    assert row["prompt"][-1]["content"].startswith("Now read them.")
    write_problems(tmp_path / "p.jsonl", [problem])
    assert read_problems(tmp_path / "p.jsonl") == (problem,)


@pytest.mark.parametrize(("row", "answer"), FORMS["answers"], ids=str)
def test_answers_in_unmistakable_rows_need_no_map(tmp_path, row, answer):
    (problem,) = load("mine", path=written(tmp_path, "rows.jsonl", row)).problems
    assert (problem.answer, problem.graded_by) == (answer, "math")


@pytest.mark.parametrize(
    "truth",
    [{"numbers": [1, 2], "target": 3}, ["1", "2"], True, None, "print(1)\nassert x\n"],
    ids=str,
)
def test_what_is_no_answer_is_never_written_as_one(tmp_path, truth):
    row = {"data_source": "x", "prompt": [USER], "ability": "math", "reward_model": {}}
    path = written(tmp_path, "r.jsonl", {**row, "reward_model": {"ground_truth": truth}})
    assert len(load("mine", path=path).set_aside) == 1


@pytest.mark.parametrize(("statement", "says"), FORMS["no test"])
def test_what_no_test_can_judge_is_set_aside_in_mapped_files_too(tmp_path, statement, says):
    assert says in mapped(tmp_path, CASES, q=statement)


def test_a_statement_that_allows_any_letter_case_is_compared_so(tmp_path):
    statement = "Print YES or NO. You can print each letter in any case (upper or lower)."
    assert mapped(tmp_path, CASES, q=statement).comparison == "any_case"
    assert mapped(tmp_path, CASES, q="In any case, print 1.").comparison == "tokens"


def test_a_checker_is_used_or_asked_about_but_never_dropped(tmp_path):
    assert "--map checker" in mapped(tmp_path, CASES, checker="import sys")
    row = {"q": "Add.", "t": CASES, "judge": "#include <testlib.h>"}
    columns = {"statement": "q", "tests": "t", "checker": "judge"}
    (problem,) = load("mine", path=written(tmp_path, "r.jsonl", row), columns=columns).problems
    assert (problem.comparison, problem.checker.language) == ("checker", "cpp")


def test_columns_may_be_nested_or_ignored_and_others_may_have_any_form(tmp_path):
    row = {"task": {"text": "Add."}, "judge": json.dumps({"cases": CASES}), "gold": RIGHT,
           "difficulty": [], "limits": "1 s", "split": None, "language": "en"}  # fmt: skip
    columns = {"statement": "task.text", "tests": "judge.cases", "gold": "none"}
    (problem,) = load("mine", path=written(tmp_path, "r.jsonl", row), columns=columns).problems
    assert (problem.statement, problem.gold, problem.language) == ("Add.", (), "python")


def test_the_refusal_of_an_unknown_file_has_a_map_that_works(tmp_path):
    row = {"uid": 1, "task": "Add.", "question": "Add.", "judge": {"inner": CASES}, "colour": "red"}
    path = written(tmp_path, "my file.jsonl", row)
    with pytest.raises(DataError, match="uid, task, question, judge, colour") as caught:
        load("mine", path=path)
    words = str(caught.value).split("--map ")[1:]
    columns = dict(word.strip().split("=") for word in words)
    assert columns == {"statement": "question", "tests": "judge.inner"}
    assert load("mine", path=path, columns=columns).problems[0].tests[0].input == Stdin("1 2")


def test_inputs_are_a_scripts_if_the_solution_reads_them(tmp_path):
    script = "def add():\n    print(sum(map(int, input().split())))\nadd()\n"
    tests = [{"input": "1 2", "output": "3"}]
    problem = mapped(tmp_path, tests, entry_point="add", gold=script)
    assert problem.tests[0].input == Stdin("1 2")


def test_arguments_of_a_function_that_nothing_names_are_no_standard_input(tmp_path):
    tests = [{"input": "nums = [1], k = 2", "output": "[1]"}]
    assert "entry_point" in mapped(tmp_path, tests)


def test_tests_that_say_so_are_public(tmp_path):
    cases = [{"public": True}, {"hidden": False}, {"is_hidden": True}, {}]
    tests = [{"input": "1", "output": "1", **one} for one in cases]
    assert [one.public for one in mapped(tmp_path, tests).tests] == [True, True, False, False]


def test_a_module_of_any_name_is_the_programs_if_the_solution_defines_what_is_imported(tmp_path):
    tests = "from sums import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    (test,) = mapped(tmp_path, tests, gold=RIGHT).tests
    assert "import" not in test.input.source
    assert "sums" in mapped(tmp_path, tests) and "gold" in mapped(tmp_path, tests)


def test_limits_and_starter_code_of_the_fields_names_count(tmp_path):
    problem = mapped(tmp_path, CASES, time_limit="1 second", starter="import sys", public=True)
    assert problem.limits.cpu_s == 2.0  # published limits are doubled
    assert "import sys" in problem.statement


PROGRAM = "a, b = input().split()\nprint(int(a) + int(b))\n"


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (
            {"description": "Add.", "input": "1 2", "output": "3", "solution": PROGRAM},
            {"statement": "description", "tests": ".", "gold": "solution"},
        ),
        (
            {"description": "Add.", "public_tests": CASES, "private_tests": CASES},
            {"statement": "description", "tests": "private_tests", "public": "public_tests"},
        ),
        (
            {"instructions": "Add.", "testCases": [{"input": "1\n2", "output": "3"}],
             "function_name": "add", "solution": RIGHT},
            {"statement": "instructions", "tests": "testCases", "entry_point": "function_name",
             "gold": "solution"},
        ),
        (
            {"description": "Add.", "inputFormat": "Two.", "sampleTests": CASES, "timeLimit": "1 s"},
            {"statement": "description+inputFormat", "tests": "sampleTests",
             "time_limit": "timeLimit"},
        ),
    ],
    ids=["columns", "private", "function", "format"],
)  # fmt: skip
def test_the_advised_map_takes_the_whole_problem(tmp_path, row, columns):
    path = written(tmp_path, "r.jsonl", row)
    with pytest.raises(DataError) as caught:
        load("mine", path=path)
    advised = dict(word.strip().split("=") for word in str(caught.value).split("--map ")[1:])
    assert advised == columns
    (problem,) = load("mine", path=path, columns=columns).problems
    assert problem.hidden_tests
    assert all(text in problem.statement for text in (row.get("inputFormat", "Add."), "Add."))


def test_a_program_is_no_final_answer(tmp_path):
    path = written(tmp_path, "r.jsonl", {"q": "Add.", "a": PROGRAM})
    (aside,) = load("mine", path=path, columns={"statement": "q", "answer": "a"}).set_aside
    assert "not a final answer" in aside.reason


def test_asserts_name_the_function_of_the_row(tmp_path):
    problem = mapped(tmp_path, ["assert candidate(1) == 2"], entry_point="twice")
    assert problem.tests[0].input == Asserts("assert candidate(1) == 2", "twice")
