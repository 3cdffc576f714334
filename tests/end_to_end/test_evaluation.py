"""The baseline recipe with real engines: vLLM in this process, and verl's standalone rollout."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.launch.demo import demo

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


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


def test_the_same_samples_killed_and_resumed_and_by_verls_rollout(world, tmp_path):
    process = subprocess.Popen(command(world, tmp_path / "killed", 64))
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
    assert sum(killed[key] != whole[key] for key in whole) <= len(whole) // 50
    metrics = json.loads((tmp_path / "killed" / "metrics.json").read_text())
    assert metrics["problems"]["samples"] == 4 * 64

    by_verl = command(world, tmp_path / "verl", 4, "coding.evaluation.mode=verl")
    subprocess.run(by_verl, check=True)
    # By their lengths: a random model's last bytes may be no text, which each shows its own way.
    drawn = samples(tmp_path / "verl")
    assert len(drawn) == 4 * 4
    assert sum(drawn[key][1] != whole[key][1] for key in drawn) <= 1


def test_the_demo_evaluates_all_its_models_with_one_engine(world, tmp_path):
    problems = [replace(p, split="test") for p in read_problems(world.root / "problems.jsonl")]
    write_problems(tmp_path / "problems.jsonl", problems)
    out = tmp_path / "evaluation.json"
    models = [f"{name}={world.root}/model" for name in ("one", "same")]
    evaluate = [
        sys.executable,
        "-m",
        "coding_model_project.launch.demo.demo_evaluation",
        str(tmp_path),
        str(out),
        *models,
    ]
    subprocess.run(evaluate, check=True)
    found = json.loads(out.read_text())
    assert found["problems"] == [problem.id for problem in problems]
    for scores in found["models"].values():
        for mode in ("greedy", "sampled"):
            assert len(scores[mode]["per_problem"]) == 4
            assert sum(scores[mode]["errors"].values()) == pytest.approx(1)
            assert scores[mode]["tokens"] > 0
    summary = demo.summarise(
        {"models": dict.fromkeys(("base", "sft", "sft_continued", "grpo"), found["models"]["one"])}
    )
    assert not demo.significant(summary)  # a model is no better than itself
