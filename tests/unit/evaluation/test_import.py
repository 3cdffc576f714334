"""`eval import`: samples of other tools become evaluations; those that do not fit are refused."""

import json

import pytest

import coding_model_project.cli as cli
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import DataError
from coding_model_project.evaluation.importing import match
from coding_model_project.evaluation.plan import DataSet
from coding_model_project.evaluation.results import read_evaluation
from coding_model_project.types import Call, Problem, Test
from tests.fakes import stdin_problem
from tests.tables import tables

CASES = tables("evaluation")

BODY = "    return x + {}\n"


@pytest.fixture
def problems(tmp_path):
    """Functions to complete, as HumanEval's."""
    write_problems(
        tmp_path / "toy.jsonl",
        [
            Problem(
                id=f"toy/{i}",
                statement=statement(i),
                split="test",
                tests=(Test(Call(f"add_{i}", (1,)), expected=1 + i),),
            )
            for i in range(3)
        ],
    )
    return tmp_path / "toy.jsonl"


def statement(i):
    return f'def add_{i}(x):\n    """Add {i}."""\n'


def imported(tmp_path, problems, rows, *more, name="run"):
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["eval", "import", str(tmp_path / "samples.jsonl"), "--dataset", f"toy={problems}"]
    return cli.main([*words, "--model", "theirs", "--out", str(tmp_path / name), *more])


def accepted(folder):
    return {(one.problem, one.sample): one.passed for one in read_evaluation(folder).results}


def lm_eval_row(i, *answers, **more):
    return {
        "doc_id": i,
        "doc": {"prompt": statement(i), "n": i},
        "target": "",
        "arguments": {
            "gen_args_0": {"arg_0": f"Complete:\n{statement(i)}", "arg_1": {"until": []}}
        },
        "resps": [list(answers)],
        "filtered_resps": [[statement(i) + one for one in answers]],
        **more,
    }


def inspect_log(*samples):
    """A log in the schema of inspect_ai 0.3, as far as it is read."""
    return {"version": 2, "status": "success", "eval": {}, "samples": list(samples)}


def inspect_sample(i, text, **more):
    output = {
        "model": "mockllm/model",
        "choices": [
            {"message": {"content": text, "role": "assistant"}, "stop_reason": "max_tokens"}
        ],
        "usage": {"input_tokens": 3, "output_tokens": 7},
    }
    asked = [{"role": "user", "content": "attachment://1"}]
    attached = {"1": statement(i)}
    whole = {"id": i, "epoch": 1, "input": asked, "output": output, "attachments": attached}
    return whole | more


def imported_log(tmp_path, problems, log, name="log.json"):
    (tmp_path / name).write_text(json.dumps(log, indent=2))
    words = ["eval", "import", str(tmp_path / name), "--dataset", f"toy={problems}"]
    return cli.main([*words, "--model", "theirs", "--out", str(tmp_path / "run")])


RIGHT_BUT_FIRST = {("toy/0", 0): False, ("toy/1", 0): True, ("toy/2", 0): True}
FORMS = {
    "whole programs": [
        {"task_id": f"Toy/{i}", "solution": f"def add_{i}(x):\n" + BODY.format(i or 9)}
        for i in range(3)
    ],
    "completions of the prompt": [
        {"task_id": f"toy/{i}", "completion": BODY.format(i or 9)} for i in (2, 0, 1)
    ],
    "lm-eval's log": [lm_eval_row(i, BODY.format(i or 9)) for i in range(3)],
    "lm-eval's log of two filters": [
        lm_eval_row(i, BODY.format(i or 9), filter=name)
        for name in ("first", "other")
        for i in range(3)
    ],
    "verl's rollouts": [
        {
            "input": f"user\n{statement(i)}\nassistant\n",
            "output": f"So:\n```python\ndef add_{i}(x):\n{BODY.format(i or 9)}```\n",
            "score": 0.0,
            "step": 10,
        }
        for i in range(3)
    ],
}


@pytest.mark.sandbox
@pytest.mark.parametrize("form", FORMS)
def test_the_samples_are_judged_by_their_problems(form, problems, tmp_path):
    assert imported(tmp_path, problems, FORMS[form]) == 0
    assert accepted(tmp_path / "run") == RIGHT_BUT_FIRST


@pytest.mark.sandbox
def test_a_log_of_inspect_says_tokens_and_what_was_cut_off(problems, tmp_path):
    block = "```python\ndef add_{}(x):\n    return x + {}\n```"
    log = inspect_log(*(inspect_sample(i, block.format(i, i or 9)) for i in range(3)))
    assert imported_log(tmp_path, problems, log) == 0
    assert accepted(tmp_path / "run") == RIGHT_BUT_FIRST
    results = read_evaluation(tmp_path / "run").results
    assert [(one.tokens, one.truncated) for one in results] == [(7, True)] * 3


LOST = inspect_sample(0, "", error={"message": "no network"})
WITHOUT_ANSWERS = {
    "a sample that failed": (inspect_log(LOST), "log.json", "no answer"),
    "no output": (inspect_log({"id": 0, "epoch": 1}), "log.json", "not a samples file of inspect"),
    "the other form": ({}, "log.eval", "inspect log convert"),
}


@pytest.mark.parametrize("case", WITHOUT_ANSWERS)
def test_a_log_that_has_no_answer_is_refused(case, problems, tmp_path, capsys):
    log, name, said = WITHOUT_ANSWERS[case]
    assert imported_log(tmp_path, problems, log, name) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.sandbox
def test_it_is_compared_with_its_like_and_rejudged(problems, tmp_path, capsys):
    rows = [lm_eval_row(i, BODY.format(i), BODY.format(9)) for i in range(3)]
    assert imported(tmp_path, problems, rows, "--temperature", "0.8") == 0
    assert imported(tmp_path, problems, rows, "--temperature", "0.8", name="other") == 0
    runs = [str(tmp_path / "run"), str(tmp_path / "other")]
    assert cli.main(["eval", "compare", *runs]) == 0
    assert cli.main(["eval", "rejudge", *runs]) == 0
    assert "0 have another verdict" in capsys.readouterr().out


def evalplus_rows(*numbers):
    return [{"task_id": f"toy/{i}", "solution": "pass"} for i in numbers]


UNFIT = {
    "problems without samples": (evalplus_rows(0, 1), "1 of 3 problems of toy have no sample"),
    "another problem": (evalplus_rows(0, 1, 2, 7), "'toy/7' is not in toy"),
    "unequal numbers": (evalplus_rows(0, 1, 2, 2), "toy/2 has 2 samples, other problems 1"),
    "drawn how": (evalplus_rows(0, 0, 1, 1, 2, 2), "pass the --temperature T"),
    "another prompt": ([{"input": "def add_x", "output": ""}], "its prompt is not in toy"),
    "another tool": (
        [{"question": "?", "answer": "!"}],
        "unknown format with fields answer, quest",
    ),
    "no object": ([["a list"]], "line 1: not a JSON object"),
    "no text": (
        [{"task_id": "toy/0", "solution": 5}],
        "line 1: its prompt or answer is not a text",
    ),
    "a conversation": (
        [{"input": [], "output": "x"}],
        "line 1: its prompt or answer is not a text",
    ),
    "nothing": ([], "no samples"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_samples_that_do_not_fit_are_refused_in_a_line(case, problems, tmp_path, capsys):
    rows, said = UNFIT[case]
    assert imported(tmp_path, problems, rows) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "run").exists()


def livecodebench(tmp_path, rows, *ids):
    """The answers of a file of LiveCodeBench's results to these problems."""
    (tmp_path / "results.json").write_text(json.dumps(rows))
    problems = tuple(stdin_problem(("1", "1"), id=f"livecodebench/{name}") for name in ids)
    data = DataSet(
        name="livecodebench", problems=problems, version="", origin="", n_set_aside=0, notes=()
    )
    return match(tmp_path / "results.json", data)


@pytest.mark.parametrize(("row", "said"), CASES["damaged results"])
def test_damaged_results_of_livecodebench_are_refused(row, said, tmp_path):
    rows = [{"question_id": "abc301_b", "code_list": ["a"]}, {"question_id": "abc301_a"} | row]
    with pytest.raises(DataError, match=said):
        livecodebench(tmp_path, rows, "abc301_a", "abc301_b")


def test_a_base_models_answer_is_its_program(tmp_path):
    """LiveCodeBench strips the blanks around an answer without fences."""
    rows = [{"question_id": "a", "output_list": ["print(1)\n\n"], "code_list": ["print(1)"]}]
    assert livecodebench(tmp_path, rows, "a").style == "bare"


@pytest.mark.sandbox
def test_other_samples_do_not_go_into_the_same_folder(problems, tmp_path, capsys):
    assert imported(tmp_path, problems, evalplus_rows(0, 1, 2)) == 0
    assert imported(tmp_path, problems, FORMS["whole programs"]) == 2
    assert "has other completions" in capsys.readouterr().err
