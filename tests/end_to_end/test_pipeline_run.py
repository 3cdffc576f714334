"""Two phases of the pipeline with real engines: done once, and told by a table."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.timeout(600)]


def pipeline(world, folder):
    grpo = [
        one
        for one in world.overrides(folder)
        if not one.startswith(("hardware", "coding.", "actor_rollout_ref.model.path"))
    ]
    quoted = ",".join(f'"{one}"' for one in [*grpo, "trainer.save_freq=1"])
    result = subprocess.run(
        [
            *(sys.executable, "-m", "recipes.pipeline", "hardware=cpu", "phases=[baseline,grpo]"),
            f"coding.run_dir={folder}",
            "coding.dataset=null",
            f"coding.problems=[{world.root}/problems.jsonl]",
            "coding.min_memory_gb=1",
            f"base_model={world.root}/model",
            f"data.test='mine={world.root}/problems.jsonl'",
            *("evaluation.n=2", "evaluation.limit=null", "grpo.steps=1"),
            f"grpo.overrides=[{quoted}]",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_phases_follow_each_other_and_are_done_once(world, tmp_path):
    first = pipeline(world, tmp_path / "pipeline")
    assert "already done" not in first
    assert "grpo: no significant difference from baseline" in " ".join(first.split())
    summary = json.loads((tmp_path / "pipeline" / "summary.json").read_text())
    baseline, grpo = summary["phases"]
    assert baseline["model"] == f"{world.root}/model"
    assert grpo["model"].startswith(f"{tmp_path}/pipeline/grpo/train-")
    assert grpo["making"]["generated"] == grpo["making"]["trained"] > 0
    assert grpo["gain"]["n_problems"] == 4
    assert (tmp_path / "pipeline" / "report.html").exists()

    again = pipeline(world, tmp_path / "pipeline")
    assert again.count("already done") == 3
    assert json.loads((tmp_path / "pipeline" / "summary.json").read_text())["phases"] == [
        baseline,
        grpo,
    ]
