"""A real training as a job: on Ray stopped and resumed, and with the evaluation of its checkpoints."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path

import pytest

import coding_model_project.cli as cli
from coding_model_project.runs.folder import RunFolder, State
from tests.contract import clusters
from tests.end_to_end.started import logged

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(600)]
_REPO = Path(__file__).parents[2]


def jobs(*words: str) -> None:
    assert cli.main(["jobs", *words]) == 0


def steps(run: Path) -> list[int]:
    trained = {"train/loss", "actor/pg_loss"}
    return [row["step"] for row in logged(run) if trained & row["data"].keys()]


def overrides(world, run: Path, *, n_steps: int, save_freq: int, recipe: str = "sft") -> list[str]:
    return [
        *world.overrides(run, recipe),
        f"trainer.total_training_steps={n_steps}",
        f"trainer.total_epochs={n_steps}",
        f"trainer.save_freq={save_freq}",
        "trainer.test_freq=-1",
    ]


@pytest.mark.parametrize("recipe", ["sft", "grpo"])
def test_a_job_on_ray_is_stopped_with_a_checkpoint_and_resumed(
    recipe, world, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    given = [recipe, *overrides(world, run, n_steps=100_000, save_freq=100_000, recipe=recipe)]
    token = secrets.token_hex(32)
    monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    with clusters.ray_head(token, cpus=16, gpus=1) as url:
        where = ["--backend", "ray", "--address", url, "--repo", str(_REPO)]
        seen: list[int] = []
        for name in ("first", "second"):
            jobs("submit", *where, "--name", name, *given)
            before = len(seen)
            while len(seen := steps(run)) < before + 3:
                time.sleep(0.5)
            jobs("stop", name)
            seen = steps(run)
            saved = sorted(int(p.name[12:]) for p in (run / "checkpoints").glob("global_step_*"))
            assert saved[-1] == seen[-1]
            assert RunFolder(run).state is State.interrupted
        assert seen == list(range(1, len(seen) + 1))  # no step was lost, and none done twice
        jobs("fetch", "second", "--out", "here")
    git = json.loads((tmp_path / "here" / "run.json").read_text())["git"]
    assert git["commit"]
    assert not (tmp_path / "here" / "checkpoints").exists()


def test_checkpoints_are_evaluated_in_the_training_s_own_job(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    asked = f"--dataset {world.root}/problems.jsonl --prompt bare --n 1 --max-tokens 8"
    options = ["--name", "both", "--repo", str(_REPO), "--with-evaluation"]
    options += ["--eval-arguments", asked]
    jobs("submit", *options, "sft", *overrides(world, run, n_steps=9, save_freq=3))
    jobs("logs", "--follow", "both")
    points = [json.loads(line) for line in (run / "watch" / "curve.jsonl").read_text().splitlines()]
    assert sorted(point["step"] for point in points) == [3, 6, 9]
