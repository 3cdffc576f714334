"""`eval export`: a model card's results say what was measured, on what, and how sure it is."""

import json

import pytest
import yaml
from huggingface_hub.repocard_data import model_index_to_eval_results

import coding_model_project.cli as cli
from coding_model_project.evaluation.results import METRICS
from tests.synthetic_evaluations import write_evaluation


def evaluation(folder, values, *, dataset="humaneval", ungradable=0, **settings):
    """A finished evaluation of four problems."""
    write_evaluation(folder, {dataset: {f"p/{n}": [True] for n in range(4)}}, **settings)
    rates = {k: {"value": v, "low": v - 0.1, "high": v + 0.1} for k, v in values.items()}
    metrics = {dataset: {"pass@k": rates, "samples": 8, "ungradable": ungradable}}
    (folder / METRICS).write_text(json.dumps(metrics))
    return folder


def exported(capsys, *arguments):
    code = cli.main(["eval", "export", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_hubs_own_reader_finds_model_data_set_and_values(tmp_path, capsys):
    run = evaluation(
        tmp_path / "run", {"1": 0.25, "10": 0.5}, ungradable=1, model="/models/tiny", seed=3
    )
    code, out, _ = exported(capsys, run)
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
        evaluation(tmp_path / str(n), {"1": value}, seed=n)
        for n, value in enumerate((0.2, 0.3, 0.4))
    ]
    code, out, _ = exported(capsys, *runs, "--out", tmp_path / "card/index.yaml")
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
    runs = [
        evaluation(tmp_path / name, {"1": 0.5}, protocol=name) for name in ("greedy", "sampled")
    ]
    _, out, _ = exported(capsys, *runs)
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
    one = evaluation(tmp_path / "one", {"1": 0.5})
    other = evaluation(tmp_path / "other", {"1": 0.5}, **(second or {}))
    if second is None:
        (other / METRICS).unlink()
    code, out, err = exported(capsys, one, other)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1
