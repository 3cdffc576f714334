"""The demo, which is the pipeline, with real engines: phases are done once, and told by a table."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.timeout(900)]


def demo(world, folder):
    """Run one step of each training; no phase can gain by that, which is exit code 1."""
    own = {
        recipe: [
            one
            for one in world.overrides(folder, recipe)
            if not one.startswith(("hardware", "coding.")) and "model.path" not in one
        ]
        for recipe in ("sft", "grpo")
    }
    quoted = {
        recipe: ",".join(f'"{one}"' for one in [*overrides, "trainer.save_freq=1"])
        for recipe, overrides in own.items()
    }
    result = subprocess.run(
        [
            *(sys.executable, "-m", "recipes.demo", "hardware=cpu"),
            f"coding.run_dir={folder}",
            "coding.dataset=null",
            f"coding.problems=[{world.root}/problems.jsonl]",
            "coding.min_memory_gb=1",
            f"base_model={world.root}/model",
            f"data.test='mine={world.root}/problems.jsonl'",
            *("evaluation.n=2", "evaluation.limit=null", "sft.steps=1", "grpo.steps=1"),
            f"sft.demonstrations={world.root}/sft.parquet",
            *(f"{recipe}.overrides=[{words}]" for recipe, words in quoted.items()),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "must_gain: no clear gain of sft, grpo" in result.stdout
    return result.stdout


def test_phases_follow_each_other_and_are_done_once(world, tmp_path):
    folder = tmp_path / "demo"
    first = demo(world, folder)
    assert "already done" not in first
    assert "grpo: no significant difference from sft_continued" in " ".join(first.split())
    summary = json.loads((folder / "summary.json").read_text())
    baseline, _, continued, grpo = phases = summary["phases"]
    assert [one["phase"] for one in phases] == ["baseline", "sft", "sft_continued", "grpo"]
    assert baseline["model"] == f"{world.root}/model"
    assert continued["model"].startswith(f"{folder}/sft_continued/train-")
    assert (folder / "model").resolve().is_relative_to(folder / "grpo")
    (config,) = (folder / "grpo").glob("train-*/config.yaml")
    assert f"path: {folder}/sft/train-" in config.read_text()  # not from the control
    assert grpo["making"]["generated"] == grpo["making"]["trained"] > 0
    assert grpo["gain"]["n_problems"] == 4
    assert (folder / "report.html").exists()

    again = demo(world, folder)
    assert again.count("already done") == 7
    assert json.loads((folder / "summary.json").read_text())["phases"] == phases
