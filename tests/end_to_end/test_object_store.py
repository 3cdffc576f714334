"""A training whose every input and output is on S3 dies with its machine, and an empty one goes on."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from coding_model_project.cli import main
from coding_model_project.runs.checkpoint_store import CheckpointStore
from tests.end_to_end.started import Started
from tests.moto_server import SECRET, S3Server, s3_server

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.soak,
    pytest.mark.xdist_group("verl"),
    pytest.mark.timeout(900),
]
CHECKPOINTS, MIRROR = "s3://bucket/grpo/checkpoints", "s3://bucket/grpo/run"
N_STEPS = 12


def start(popen, machine: Path, overrides: list[str]) -> Started:
    """Start a run on a machine with nothing on it."""
    (machine / "home").mkdir(parents=True)
    own = {"HOME": str(machine / "home"), "HF_TOKEN": "hf-secret-token"}
    run, log = machine / "outputs/grpo", machine / "log.txt"
    return Started(popen, "grpo", overrides, run, log, cwd=machine, **own)


def manifests(s3: S3Server) -> list[int]:
    found = [key for key in s3.objects("grpo/checkpoints") if key.endswith("manifest.json")]
    return [int(key.split("global_step_")[1].split("/")[0]) for key in found]


def test_everything_on_s3_and_an_empty_machine_goes_on(world, tmp_path, monkeypatch, capsys, popen):
    monkeypatch.delenv("CODING_DATA_CACHE", raising=False)
    with s3_server() as s3:
        overrides = [
            one
            for one in world.overrides(Path("outputs/grpo"))
            if not one.startswith(("coding.problems", "data.", "actor_rollout_ref.model.path"))
        ]
        rows = s3.upload(world.root / "grpo.parquet", "data/rl_train.parquet")
        overrides += [
            f"coding.problems=[{s3.upload(world.root / 'problems.jsonl', 'data/problems.jsonl')}]",
            f"data.train_files={rows}",
            f"data.val_files={rows}",
            "data.train_batch_size=4",
            "data.max_response_length=16",
            f"actor_rollout_ref.model.path={s3.upload(world.root / 'model', 'models/tiny')}",
            f"coding.checkpoints.url={CHECKPOINTS}",
            "coding.checkpoints.keep=2",
            f"coding.mirror.url={MIRROR}",
            "coding.mirror.every_s=2",
            "trainer.save_freq=1",
            f"trainer.total_training_steps={N_STEPS}",
            "trainer.total_epochs=1000",
        ]
        one, two = tmp_path / "one", tmp_path / "two"
        first = start(popen, one, overrides)
        first.wait(lambda: 2 in manifests(s3))
        first.kill()  # the machine is lost, with its disk, in the middle of another upload
        time.sleep(5)
        saved, before = max(manifests(s3)), first.steps
        assert saved >= before[-1] - 2
        shutil.rmtree(one)

        second = start(popen, two, overrides)
        second.wait(lambda: any(step > saved for step in second.steps))
        with s3.outage():
            there = max(second.steps)
            second.wait(lambda: max(second.steps) >= there + 3)  # training goes on
            time.sleep(25)  # longer than what the library's own retries bridge
        log = second.output if second.process.wait(300) == 0 else ""
        assert log, second.output[-3000:]
        assert f"restored from {MIRROR}, without checkpoints" in log
        assert f"checkpoint global_step_{saved} restored from {CHECKPOINTS}: resuming" in log
        assert f"mirror {MIRROR}: the endpoint" in log  # the outage was said
        assert second.steps[-1] == N_STEPS
        resumed = [step for step in second.steps if step > saved]
        assert resumed[-(N_STEPS - saved) :] == list(range(saved + 1, N_STEPS + 1))
        there = CheckpointStore(CHECKPOINTS, 2, print).steps()
        assert there[0] == N_STEPS
        assert len(there) == 2  # older ones are pruned
        assert (
            s3.content("grpo/run/metrics.jsonl")
            == (two / "outputs/grpo/metrics.jsonl").read_bytes()
        )
        keys = [*s3.objects("grpo/run"), "grpo/checkpoints/owner.json"]
        stored = [s3.content(key) for key in keys]
        assert not any(
            secret in one for one in stored for secret in (SECRET.encode(), b"hf-secret")
        )
        capsys.readouterr()
        assert main(["runs", "s3://bucket/grpo"]) == 0
        assert "finished" in capsys.readouterr().out
        assert main(["runs", "show", MIRROR]) == 0
        shown = capsys.readouterr().out
        assert "attempt 1 failed" in shown
        assert "attempt 2 finished" in shown
        assert main(["report", MIRROR, "--out", str(tmp_path / "report.html")]) == 0
