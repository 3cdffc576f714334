"""The baseline recipe with real engines: vLLM in this process, and verl's standalone rollout."""

import json
import shutil
import subprocess
import sys
import time

import pytest

from coding_model_project.cli import main
from coding_model_project.data.problems import read_problems
from coding_model_project.launch.demo import demo
from coding_model_project.runs.folder import RunFolder

# They share two evaluations.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.xdist_group("evaluation")]


def samples(folder):
    """Every sample's text and number of tokens."""
    lines = (folder / "completions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    found = {(row["problem"], row["sample"]): (row["completion"], row["tokens"]) for row in rows}
    assert len(found) == len(rows)
    return found


MODELS = ("base", "sft", "sft_continued", "grpo")
OVERRIDES = [
    "hardware=cpu",
    "coding.min_memory_gb=1",
    "coding.evaluation.protocol=sampled",
    "coding.evaluation.temperature=1.0",
    "coding.evaluation.top_p=1.0",
]


def overrides(world, folder, n, *more):
    return [
        *OVERRIDES,
        f"coding.run_dir={folder}",
        f"coding.evaluation.model={world.root}/model",
        f'coding.evaluation.datasets=["held_out={world.root}/problems.jsonl"]',
        f"coding.evaluation.n={n}",
        *more,
    ]


@pytest.fixture(scope="module")
def killed(world, tmp_path_factory):
    """The command of an evaluation that was killed, and its folder."""
    folder = tmp_path_factory.mktemp("evaluation") / "killed"
    # Few at once, so that the kill comes in the middle.
    words = ["recipes.baseline", *overrides(world, folder, 8, "coding.evaluation.concurrency=4")]
    process = subprocess.Popen([sys.executable, "-m", *words])
    try:
        file = folder / "completions.jsonl"
        while not file.exists() or file.read_bytes().count(b"\n") < 8:
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert file.read_bytes().count(b"\n") < 4 * 8
    return words, folder


IN_ONE_PROCESS = """
import gc, json, runpy, shutil, sys
for module, *words in json.loads(sys.argv[1]):
    if module in ("copy", "copytree"):
        getattr(shutil, module)(*words)
    else:
        sys.argv = [module, *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        gc.collect()
"""
"""Importing vLLM takes longer than evaluating this model."""


@pytest.fixture(scope="module")
def evaluated(world, killed, tmp_path_factory):
    """A folder with the demo's evaluations of four models; one is trained anew, and evaluated again.

    `before` is its evaluation before that. The same process resumes the killed evaluation.
    """
    from safetensors.torch import load_file, save_file

    folder, other = tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("other") / "model"
    shutil.copytree(world.root / "model", other)
    weights = {name: -values for name, values in load_file(other / "model.safetensors").items()}
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    evaluate = [
        "coding_model_project.launch.demo.demo_evaluation",
        *map(str, (world.root / "problems.jsonl", folder)),
        *(f"{name}={other if name == 'sft' else world.root / 'model'}" for name in MODELS),
    ]
    commands = [
        evaluate,
        ["copytree", str(folder / "sampled" / "sft"), str(folder / "before")],
        ["copy", f"{world.root}/model/model.safetensors", str(other)],
        evaluate,
        killed[0],
    ]
    subprocess.run([sys.executable, "-c", IN_ONE_PROCESS, json.dumps(commands)], check=True)
    return folder


def test_a_killed_evaluation_resumes_with_the_samples_of_one_in_one_go(killed, evaluated):
    resumed, whole = samples(killed[1]), samples(evaluated / "sampled" / "base")
    assert len(RunFolder(killed[1]).attempts()) == 2
    assert len(whole) == 4 * 8
    # The rounding of sums depends on the batch, and may tip a token now and then.
    assert differing(whole, resumed) <= 1
    metrics = json.loads((killed[1] / "metrics.json").read_text())
    assert metrics["held_out"]["samples"] == 4 * 8


def test_verls_rollout_draws_the_same_samples(world, evaluated, tmp_path, forked):
    words = overrides(world, tmp_path / "verl", 4, "coding.evaluation.mode=verl")
    subprocess.run([sys.executable, "-m", "recipes.baseline", *words], check=True)
    # By their lengths: a random model's last bytes may be no text, which each shows its own way.
    drawn, whole = samples(tmp_path / "verl"), samples(evaluated / "sampled" / "base")
    assert len(drawn) == 4 * 4
    assert sum(drawn[key][1] != whole[key][1] for key in drawn) <= 1


def test_the_demo_evaluates_all_its_models_with_one_engine(world, evaluated):
    problems = list(read_problems(world.root / "problems.jsonl"))
    base = samples(evaluated / "sampled/base")
    assert len(base) == 8 * len(samples(evaluated / "greedy/base")) == 8 * len(problems)
    assert differing(base, samples(evaluated / "before")) > len(base) // 2
    assert differing(base, samples(evaluated / "sampled/grpo")) <= 1  # its weights are back
    assert main(["eval", "compare", *(f"{evaluated}/sampled/{name}" for name in MODELS)]) == 0
    rates = {name: demo.sampled_rates(evaluated, name, problems) for name in MODELS}
    summary = demo.summarise(evaluated, rates)
    assert not demo.significant(summary)  # a model is no better than itself
    for phase in summary["phases"]:
        assert sum(phase["errors"].values()) == pytest.approx(1)
        assert phase["tokens"] > 0 and phase["n_problems"] == len(problems)


def test_the_demo_evaluates_a_model_that_was_trained_anew_again(evaluated):
    base, sft = (samples(evaluated / "sampled" / name) for name in ("base", "sft"))
    assert differing(base, sft) <= 1
    attempts = {name: len(RunFolder(evaluated / "sampled" / name).attempts()) for name in MODELS}
    assert attempts == dict.fromkeys(MODELS, 1)


def differing(some, others):
    assert some.keys() == others.keys()
    return sum(some[key] != others[key] for key in some)
