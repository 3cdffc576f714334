"""`data repair-traces`: demonstrations of repair, and that they hold nothing of a hidden test."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from coding_model_project import cli
from coding_model_project.data.problems import write_problems
from coding_model_project.data.training.rows import sft_rows, write_rows
from coding_model_project.data.training.samples import Sample, Trace, choose_traces
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import Call, Test
from tests.unit.data.test_sft_rows import ADD, problem, write

HIDDEN = 71717
SAY = {"role": "user", "content": "wrong"}


def wrong(code, error="wrong_answer", of=0):
    sample = Sample(problem=problem(of), completion=code, code=code)
    return Trace(wrong=sample, error=error, observation=SAY)


def test_wrong_programs_of_different_errors_first_and_the_nearest_right_one():
    right = {"mine/0": ["def f(x):\n    return x * 2\n", "lambda y: y + y"]}
    several = [wrong("def f(x):\n    return x * 3\n")]
    several += [wrong("def f(x):\n    return x * 4\n"), wrong("lambda y: z + y", "runtime_error")]
    several += [wrong("x", of=9)]  # nothing right is known of it
    traces = choose_traces(several, right, n=2)
    assert [trace.error for trace in traces] == ["wrong_answer", "runtime_error"]
    assert [trace.right for trace in traces] == right["mine/0"]


def with_public(n):
    hidden = Test(input=Call(function="solve", args=(HIDDEN,)), expected=HIDDEN + n)
    (public,) = problem(n).tests
    return replace(problem(n), tests=(replace(public, public=True), hidden))


@pytest.mark.sandbox
def test_traces_mix_with_demonstrations_and_show_public_tests_only(tmp_path, capsys):
    problems = [with_public(n) for n in range(3)]
    write_problems(tmp_path / "p.jsonl", problems)
    passes_public = "def solve(x):\n    return 2\n"
    samples = [
        [(ADD.format(5), False, False), (ADD.format(0), True, False)],
        [(passes_public, False, False), (ADD.format("z"), False, False)],
        [("def solve(x", False, True)],  # cut off: not what a model would have to repair
    ]
    write(tmp_path / "ev", problems, samples)
    out = tmp_path / "traces.parquet"
    command = ["data", "repair-traces", f"{tmp_path}/ev", "--problems", f"{tmp_path}/p.jsonl"]
    assert cli.main([*command, "--out", str(out)]) == 0
    first, second = pq.read_table(out).to_pylist()
    assert [message["role"] for message in first["messages"]] == ["user", "assistant"] * 2
    assert [message["content"] for message in first["messages"]] == [
        "Add 0.",
        ADD.format(5),
        "wrong_answer\nsolve(1)\nexpected 1, got 6",
        ADD.format(0),
    ]
    assert second["messages"][2]["content"].startswith(
        "runtime_error\nsolve(1)\nexpected 2, got Name"
    )
    assert second["messages"][3]["content"] == ADD.format(1)  # its own: no sample was accepted
    assert str(HIDDEN) not in str([first, second])
    write_rows(tmp_path / "sft.parquet", sft_rows(problems, PromptStyle.bare), trains=True)
    assert pq.read_schema(out) == pq.read_schema(tmp_path / "sft.parquet")
    assert "pass the public tests, so they have no observation: 1" in capsys.readouterr().out


@pytest.mark.sandbox
def test_held_out_problems_of_ones_own_file_give_no_traces(tmp_path, capsys):
    problems = [problem(0), replace(problem(1), split="valid")]
    write_problems(tmp_path / "p.jsonl", problems)
    write(tmp_path / "ev", problems, [[(ADD.format(5), False, False)]] * 2)
    command = ["data", "repair-traces", f"{tmp_path}/ev", "--problems", f"{tmp_path}/p.jsonl"]
    cli.main([*command, "--out", f"{tmp_path}/o.parquet"])
    said = capsys.readouterr()
    assert "ev: left out 1 samples of held-out problems (validation 1)" in said.out
    assert "1 rejected samples" in said.out + said.err or "rejected samples: 1" in said.out


@pytest.mark.sandbox
def test_without_public_tests_there_is_nothing_to_show(tmp_path, capsys):
    write_problems(tmp_path / "p.jsonl", [problem(0)])
    write(tmp_path / "ev", [problem(0)], [[(ADD.format(5), False, False)]])
    command = ["data", "repair-traces", f"{tmp_path}/ev", "--problems", f"{tmp_path}/p.jsonl"]
    assert cli.main([*command, "--out", f"{tmp_path}/o.parquet"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no problem of the 1 rejected samples has public tests" in said


@pytest.mark.verl
def test_only_the_last_answer_of_a_conversation_is_trained_on(tmp_path):
    from omegaconf import OmegaConf

    from coding_model_project.synthetic.tiny_model import train_tokenizer
    from coding_model_project.verl_ext.trainers.last_answer import LastAnswerDataset

    tokenizer = train_tokenizer(iter(["x"]), 300)
    content = ["Add 0.", "wrong", "told", "right"]
    messages = [
        {"role": role, "content": text}
        for role, text in zip(["user", "assistant"] * 2, content, strict=True)
    ]
    about = {"data_source": "mine", "extra_info": {"split": "train", "problem": "mine/0"}}
    rows = [about | {"messages": messages}, about | {"messages": messages[:2]}]
    write_rows(tmp_path / "rows.parquet", rows, trains=True)
    config = OmegaConf.create({"pad_mode": "no_padding", "max_length": 256})
    dataset = LastAnswerDataset(str(tmp_path / "rows.parquet"), tokenizer, config)
    trained = [tokenizer.decode(row["input_ids"][row["loss_mask"] == 1]) for row in dataset]
    assert trained == ["right<|im_end|>\n", "wrong<|im_end|>\n"]
