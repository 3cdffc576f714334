"""The baseline recipe with real engines: vLLM in this process, and verl's standalone rollout."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file, save_file

from coding_model_project.cli import main
from coding_model_project.data.problems import read_problems
from coding_model_project.launch.demo import demo
from coding_model_project.runs.folder import RunFolder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def samples(folder):
    """Every sample's text and number of tokens."""
    lines = (folder / "completions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    found = {(row["problem"], row["sample"]): (row["completion"], row["tokens"]) for row in rows}
    assert len(found) == len(rows)
    return found


def command(world, folder, n, *more):
    return [
        *(sys.executable, "-m", "recipes.baseline", "hardware=cpu"),
        f"coding.run_dir={folder}",
        "coding.min_memory_gb=1",
        f"coding.evaluation.model={world.root}/model",
        f"coding.evaluation.datasets=[{world.root}/problems.jsonl]",
        *("coding.evaluation.protocol=sampled", f"coding.evaluation.n={n}"),
        *("coding.evaluation.max_tokens=48", "coding.evaluation.concurrency=16"),
        *more,
    ]


def test_the_same_samples_killed_and_resumed_and_by_verls_rollout(world, tmp_path, popen):
    process = popen(command(world, tmp_path / "killed", 64))
    file = tmp_path / "killed" / "completions.jsonl"
    while not file.exists() or file.read_bytes().count(b"\n") < 40:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for name in ("killed", "whole"):
        subprocess.run(command(world, tmp_path / name, 64), check=True)
    killed, whole = samples(tmp_path / "killed"), samples(tmp_path / "whole")
    assert killed.keys() == whole.keys()
    assert len(whole) == 4 * 64
    # The rounding of sums depends on the batch, and may tip a token now and then.
    assert differing(whole, killed) <= len(whole) // 50
    metrics = json.loads((tmp_path / "killed" / "metrics.json").read_text())
    assert metrics["problems"]["samples"] == 4 * 64

    by_verl = command(world, tmp_path / "verl", 4, "coding.evaluation.mode=verl")
    subprocess.run(by_verl, check=True)
    # By their lengths: a random model's last bytes may be no text, which each shows its own way.
    drawn = samples(tmp_path / "verl")
    assert len(drawn) == 4 * 4
    assert sum(drawn[key][1] != whole[key][1] for key in drawn) <= 1


def test_the_demo_evaluates_all_its_models_with_one_engine(world, tmp_path):
    problems, other = list(read_problems(world.root / "problems.jsonl")), tmp_path / "other"
    shutil.copytree(world.root / "model", other)
    weights = {name: -values for name, values in load_file(other / "model.safetensors").items()}
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    models = dict.fromkeys(("base", "sft", "sft_continued", "grpo"), world.root / "model")
    models["sft"] = other
    evaluate = [
        sys.executable,
        "-m",
        "coding_model_project.launch.demo.demo_evaluation",
        str(world.root / "problems.jsonl"),
        str(tmp_path),
        *(f"{name}={model}" for name, model in models.items()),
    ]
    subprocess.run(evaluate, check=True)
    base = samples(tmp_path / "sampled/base")
    assert len(base) == 8 * len(samples(tmp_path / "greedy/base")) == 8 * len(problems)
    assert differing(base, samples(tmp_path / "sampled/sft")) > len(base) // 2
    assert differing(base, samples(tmp_path / "sampled/grpo")) <= 1  # its weights are back
    assert main(["eval", "compare", *(f"{tmp_path}/sampled/{name}" for name in models)]) == 0
    rates = {name: demo.sampled_rates(tmp_path, name, problems) for name in models}
    summary = demo.summarise(tmp_path, rates)
    assert not demo.significant(summary)  # a model is no better than itself
    for phase in summary["phases"]:
        assert sum(phase["errors"].values()) == pytest.approx(1)
        assert phase["tokens"] > 0 and phase["n_problems"] == len(problems)

    shutil.copy(world.root / "model/model.safetensors", other)  # as if it were trained anew
    subprocess.run(evaluate, check=True)
    assert differing(base, samples(tmp_path / "sampled/sft")) <= 1
    attempts = {name: len(RunFolder(tmp_path / "sampled" / name).attempts()) for name in models}
    assert attempts == dict.fromkeys(models, 1)


def differing(some, others):
    assert some.keys() == others.keys()
    return sum(some[key] != others[key] for key in some)
