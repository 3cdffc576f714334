"""`watch s3://…/checkpoints`: new checkpoints are fetched, evaluated once, and let go of."""

from __future__ import annotations

import json

import pytest
import stamina

from coding_model_project.errors import CheckpointError, ConfigError
from coding_model_project.evaluation.watch import Plan, watch
from coding_model_project.evaluation.watch.found import FetchedCheckpoints
from coding_model_project.runs.checkpoint_store import CheckpointStore
from coding_model_project.runs.checkpoints import write_manifest
from tests.moto_server import s3_server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("moto")]
URL = "s3://bucket/grpo/checkpoints"
TOOL = """
import json, pathlib, sys
assert pathlib.Path(sys.argv[1], "model.safetensors").exists()
results = {"results": {"toy": {"acc,none": 0.5}}}
pathlib.Path(sys.argv[2], "results_1.json").write_text(json.dumps(results))
"""


@pytest.fixture
def s3():
    with s3_server() as server, stamina.set_testing(True, attempts=2):
        yield server


def save(tmp_path, step):
    folder = tmp_path / f"grpo/checkpoints/global_step_{step}"
    model = folder / "actor/huggingface"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"step": step}))
    (model / "model.safetensors").write_bytes(b"weights")
    (folder / "actor/optim_world_size_1_rank_0.pt").write_bytes(b"o" * 100)
    (folder / "data.pt").write_bytes(b"d")
    write_manifest(folder)
    return folder


def test_only_models_are_fetched_and_pruned_ones_go(s3, tmp_path):
    store = CheckpointStore(URL, 1, print)
    store.upload(save(tmp_path, 1))
    fetched = FetchedCheckpoints([URL], tmp_path / "out", print)
    fetched.refresh()
    folder = tmp_path / "out/fetched/grpo/checkpoints"
    assert (folder / "global_step_1/actor/huggingface/model.safetensors").exists()
    assert not list(folder.rglob("optim*"))
    assert not list(folder.rglob("data.pt"))
    store.upload(save(tmp_path, 2))  # and 1 is pruned there
    fetched.refresh()
    assert [path.name for path in folder.iterdir()] == ["global_step_2"]


def test_a_checkpoint_behind_a_url_is_evaluated_once(s3, tmp_path):
    CheckpointStore(URL, 3, print).upload(save(tmp_path, 4))
    (tmp_path / "tool.py").write_text(TOOL)
    said = []
    plan = Plan(
        patterns=(URL,),
        out=tmp_path / "out",
        command=f"{{python}} {tmp_path / 'tool.py'} {{model}} {{out}}",
        once=True,
    )
    curve = watch(plan, said.append)
    assert [point.step for point in curve.points] == [4]
    before = len(said)
    watch(plan, said.append)
    assert len(curve.points) == 1
    assert not [line for line in said[before:] if "0.5" in line]


def test_what_cannot_be_watched(s3, tmp_path):
    with pytest.raises(ConfigError, match="pass the folder of checkpoints, s3://bucket/grpo"):
        FetchedCheckpoints([f"{URL}/global_step_1"], tmp_path, print)
    with pytest.raises(CheckpointError, match="no such bucket"):
        FetchedCheckpoints(["s3://nowhere/checkpoints"], tmp_path, print).refresh()
