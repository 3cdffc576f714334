"""`eval export --format inspect`: a log says what its evaluation says, and can be imported again."""

import json
from importlib.util import find_spec

import pytest

import coding_model_project.cli as cli
from coding_model_project.data.problems import write_problems
from coding_model_project.evaluation.results import (
    COMPLETIONS,
    METRICS,
    Generated,
    read_evaluation,
    to_line,
)
from coding_model_project.evaluation.scores import dataset_metrics
from coding_model_project.types import Call, Problem, Test
from tests.synthetic_evaluations import write_evaluation
from tests.synthetic_runs import rollout


def evaluation(folder, outcomes, *, prompt="Add two numbers.", changes=None, **settings):
    """A finished evaluation with all that its samples left.

    Args:
        changes: fields of completions, by number of the sample.
    """
    write_evaluation(folder, outcomes, **settings)
    results = read_evaluation(folder).results
    completions, rollouts = [], []
    for result in results:
        fields = {
            **{name: getattr(result, name) for name in ("dataset", "problem", "sample", "tokens")},
            "completion": "print(3)",
            "truncated": False,
            "seed": 7,
            "seconds": 0.5,
            "at": 1e9,
            **(changes or {}).get(result.sample, {}),
        }
        completions.append(to_line(Generated(**fields)))
        rollouts.append(
            rollout(
                step=0,
                split=result.dataset,
                problem=result.problem,
                sample=str(result.sample),
                prompt=prompt,
                completion=fields["completion"],
                verdict={"input": "secret(3)", "detail": "expected 4"},
            )
        )
    (folder / COMPLETIONS).write_bytes(b"".join(completions))
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rollouts))
    names = read_evaluation(folder).datasets()
    metrics = {
        name: dataset_metrics([one for one in results if one.dataset == name], (1, 2))
        for name in names
    }
    (folder / METRICS).write_text(json.dumps(metrics))
    return folder


def exported(*arguments):
    return cli.main(["eval", "export", "--format", "inspect", *map(str, arguments)])


def log_of(tmp_path, run):
    out = tmp_path / "log.json"
    assert exported(run, "--out", out) == 0
    return json.loads(out.read_text())


def test_a_sample_has_its_conversation_its_end_and_its_tokens(tmp_path):
    attempts = [
        {"completion": "print(2)", "observation": "The program fails."},
        {"completion": "print(3)", "observation": None},
    ]
    changes = {
        0: {"truncated": True},
        1: {"reasoning": "A sum.", "reasoning_tokens": 4, "attempts": attempts},
    }
    run = evaluation(
        tmp_path / "run",
        {"p/1": [True, False]},
        prompt="Be brief.\n\nAdd two numbers.",
        changes=changes,
        system_prompt="Be brief.",
        sampling={"n": 2, "temperature": 0.8, "max_tokens": 64, "top_p": 0.95, "min_p": 0.1},
    )
    log = log_of(tmp_path, run)
    first, second = log["samples"]
    assert (first["id"], first["epoch"], second["epoch"]) == ("p/1", 1, 2)
    assert [(one["role"], one["content"]) for one in first["messages"]] == [
        ("system", "Be brief."),
        ("user", "Add two numbers."),
        ("assistant", "print(3)"),
    ]
    assert first["input"] == first["messages"][:2]
    assert first["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert first["output"]["usage"] == {"output_tokens": 10, "total_tokens": 10}
    assert [one["role"] for one in second["messages"][2:]] == ["assistant", "user", "assistant"]
    assert [part["type"] for part in second["messages"][-1]["content"]] == ["reasoning", "text"]
    assert second["output"]["usage"]["reasoning_tokens"] == 4
    assert second["scores"]["code_scorer"]["value"] == "I"
    assert second["scores"]["code_scorer"]["explanation"] == "wrong_answer"
    assert "secret" not in json.dumps(log), "a hidden test was given away"
    assert log["eval"]["config"] == {"epochs": 2}
    assert log["eval"]["model_generate_config"] == {
        "system_message": "Be brief.",
        "temperature": 0.8,
        "max_tokens": 64,
        "top_p": 0.95,
        "extra_body": {"min_p": 0.1},
    }


def test_rates_have_their_intervals_and_what_was_not_judged_is_an_error(tmp_path):
    run = evaluation(
        tmp_path / "run",
        {"p/1": [True, None], "p/2": [False, False]},
        changes={1: {"refused": "the prompt is too long", "completion": ""}},
        model="/models/tiny",
    )
    log = log_of(tmp_path, run)
    (scores,) = log["results"]["scores"]
    assert (scores["scored_samples"], scores["unscored_samples"]) == (3, 1)
    rate = scores["metrics"]["pass@1"]
    assert rate["value"] == 0.5
    assert rate["metadata"]["low"] < 0.5 < rate["metadata"]["high"]
    (lost,) = [one for one in log["samples"] if one["error"]]
    assert lost["error"]["message"] == "the sandbox is down"
    assert (lost["scores"], lost["output"]["choices"]) == ({}, [])
    assert (log["eval"]["model"], log["eval"]["dataset"]["samples"]) == ("/models/tiny", 2)


def test_a_folder_gets_a_log_of_each_data_set_by_inspects_names(tmp_path, capsys):
    run = evaluation(tmp_path / "run", {"toy_set": {"p/1": [True]}, "other": {"p/1": [False]}})
    assert exported(run, "--out", tmp_path / "logs") == 0
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert [name.split("_")[1] for name in names] == ["other", "toy-set"]
    assert exported(run, "--out", tmp_path / "one.json") == 2
    assert "2 logs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "options", "said"),
    [
        ("rollouts.jsonl", ["--out", "log.json"], "lacks sample 0 of p/1 (toy)"),
        (METRICS, ["--out", "log.json"], "not finished"),
        (None, [], "--out FOLDER"),
    ],
)
def test_what_cannot_be_a_log_is_refused_in_a_line(file, options, said, tmp_path, capsys):
    run = evaluation(tmp_path / "run", {"p/1": [True]})
    if file:
        (run / file).unlink()
    assert exported(run, *options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.skipif(find_spec("inspect_ai") is not None, reason="Inspect is installed")
def test_a_packed_log_needs_inspect(tmp_path, capsys):
    run = evaluation(tmp_path / "run", {"p/1": [True]})
    assert exported(run, "--out", tmp_path / "log.eval") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install inspect-ai" in line


@pytest.mark.sandbox
@pytest.mark.parametrize("bare", [True, False], ids=["bare programs", "fenced programs"])
def test_an_exported_log_comes_back_with_the_same_verdicts(bare, tmp_path):
    problems = [
        Problem(
            id=f"toy/{i}",
            statement=f"Define add_{i}(x).",
            split="test",
            tests=(Test(Call(f"add_{i}", (1,)), expected=1 + i),),
        )
        for i in range(3)
    ]
    write_problems(tmp_path / "toy.jsonl", problems)
    rows = [
        row_of(problem, f"def add_{i}(x):\n    return x + {added}", bare)
        for i, problem in enumerate(problems)
        for added in (i, 2)
    ]
    samples = tmp_path / "samples.jsonl"
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--dataset", f"toy={tmp_path / 'toy.jsonl'}", "--model", "m", "--temperature", "1"]

    def imported(file, folder):
        assert cli.main(["eval", "import", str(file), *words, "--out", str(folder)]) == 0
        results = read_evaluation(folder).results
        return {one.key: (one.passed, one.error, one.program) for one in results}

    before = imported(samples, tmp_path / "first")
    assert {passed for passed, _, _ in before.values()} == {True, False}
    assert exported(tmp_path / "first", "--out", tmp_path / "log.json") == 0
    assert imported(tmp_path / "log.json", tmp_path / "second") == before


def row_of(problem, code, bare):
    """A sample as evalplus or verl writes it."""
    if bare:
        return {"task_id": problem.id, "solution": code}
    return {"input": problem.statement, "output": f"So:\n```python\n{code}\n```"}
