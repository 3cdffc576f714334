"""`eval export`: a log that can be imported again; a model card with what was measured, and how sure."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import yaml
from huggingface_hub.repocard_data import model_index_to_eval_results

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


# ── the model-index ────────────────────────────────────────────────────────────────────────────────


def measured(folder, values, *, dataset="humaneval", ungradable=0, **settings):
    """A finished evaluation of four problems."""
    write_evaluation(folder, {dataset: {f"p/{n}": [True] for n in range(4)}}, **settings)
    rates = {k: {"value": v, "low": v - 0.1, "high": v + 0.1} for k, v in values.items()}
    metrics = {dataset: {"pass@k": rates, "samples": 8, "ungradable": ungradable}}
    (folder / METRICS).write_text(json.dumps(metrics))
    return folder


def indexed(capsys, *arguments):
    code = cli.main(["eval", "export", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_hubs_own_reader_finds_model_data_set_and_values(tmp_path, capsys):
    run = measured(
        tmp_path / "run", {"1": 0.25, "10": 0.5}, ungradable=1, model="/models/tiny", seed=3
    )
    code, out, _ = indexed(capsys, run)
    assert code == 0
    name, results = model_index_to_eval_results(yaml.safe_load(out)["model-index"])
    assert name == "tiny"
    assert [(one.metric_type, one.metric_value) for one in results] == [
        ("pass@1", 25.0),
        ("pass@10", 50.0),
    ]
    first = results[0]
    assert (first.task_type, first.dataset_name) == ("text-generation", "humaneval")
    assert first.dataset_type == "openai/openai_humaneval"
    assert (first.metric_args["low"], first.metric_args["high"]) == (15.0, 35.0)
    assert first.metric_args["seeds"] == [3]
    assert first.metric_args["could_not_be_judged"] == 1
    assert first.metric_args["protocol_hash"]


def test_runs_that_differ_in_seed_alone_become_a_mean_and_its_deviation(tmp_path, capsys):
    runs = [
        measured(tmp_path / str(n), {"1": value}, seed=n) for n, value in enumerate((0.2, 0.3, 0.4))
    ]
    code, out, _ = indexed(capsys, *runs, "--out", tmp_path / "card/index.yaml")
    assert (code, out) == (0, "")
    [result] = yaml.safe_load((tmp_path / "card/index.yaml").read_text())["model-index"][0][
        "results"
    ]
    [metric] = result["metrics"]
    assert metric["value"] == 30.0
    assert metric["args"]["std"] == 10.0
    assert metric["args"]["samples"] == 24
    assert "low" not in metric["args"]


def test_another_protocol_is_another_result(tmp_path, capsys):
    runs = [measured(tmp_path / name, {"1": 0.5}, protocol=name) for name in ("greedy", "sampled")]
    _, out, _ = indexed(capsys, *runs)
    _, results = model_index_to_eval_results(yaml.safe_load(out)["model-index"])
    assert [one.metric_args["protocol"] for one in results] == ["greedy", "sampled"]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"model": "other"}, "of several models (m, other); pass --name"),
        ({}, "humaneval has two runs with seed 0"),
        (None, "the evaluation is not finished"),
    ],
)
def test_what_cannot_be_one_models_results_is_refused(second, says, tmp_path, capsys):
    one = measured(tmp_path / "one", {"1": 0.5})
    other = measured(tmp_path / "other", {"1": 0.5}, **(second or {}))
    if second is None:
        (other / METRICS).unlink()
    code, out, err = indexed(capsys, one, other)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1
