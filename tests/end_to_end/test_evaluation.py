"""The baseline recipe with real engines: vLLM in this process, and verl's standalone rollout."""

import json
import subprocess
import sys
import time

import pytest

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
import gc, json, runpy, sys
for module, *words in json.loads(sys.argv[1]):
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    gc.collect()
"""
"""Importing vLLM takes longer than evaluating this model."""


@pytest.fixture(scope="module")
def whole(world, killed, tmp_path_factory):
    """The samples of an evaluation in one go; the same process resumes the killed one."""
    folder = tmp_path_factory.mktemp("whole")
    commands = [["recipes.baseline", *overrides(world, folder, 8)], killed[0]]
    subprocess.run([sys.executable, "-c", IN_ONE_PROCESS, json.dumps(commands)], check=True)
    return samples(folder)


def test_a_killed_evaluation_resumes_with_the_samples_of_one_in_one_go(killed, whole):
    resumed = samples(killed[1])
    assert len(RunFolder(killed[1]).attempts()) == 2
    assert len(whole) == 4 * 8
    # The rounding of sums depends on the batch, and may tip a token now and then.
    assert whole.keys() == resumed.keys()
    assert sum(whole[key] != resumed[key] for key in whole) <= 1
    metrics = json.loads((killed[1] / "metrics.json").read_text())
    assert metrics["held_out"]["samples"] == 4 * 8


def test_verls_rollout_draws_the_same_samples(world, whole, tmp_path):
    words = overrides(world, tmp_path / "verl", 4, "coding.evaluation.mode=verl")
    subprocess.run([sys.executable, "-m", "recipes.baseline", *words], check=True)
    # By their lengths: a random model's last bytes may be no text, which each shows its own way.
    drawn = samples(tmp_path / "verl")
    assert len(drawn) == 4 * 4
    assert sum(drawn[key][1] != whole[key][1] for key in drawn) <= 1
