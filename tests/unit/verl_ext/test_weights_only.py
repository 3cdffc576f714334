"""Checkpoints of training state, honest and hostile, through the loaders of verl and TransferQueue."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest

from coding_model_project.errors import CheckpointError

pytestmark = pytest.mark.verl


@pytest.fixture(scope="module")
def torch():
    import torch

    return torch


@pytest.fixture(scope="module")
def weights_only(torch):
    from coding_model_project.verl_ext.trainers import weights_only

    return weights_only


class Stranger:
    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return (open, (self.mark, "w"))


@pytest.fixture(autouse=True)
def _safe(monkeypatch, torch, weights_only):
    from transfer_queue import controller
    from transfer_queue.storage import simple_storage

    monkeypatch.setattr(torch, "load", torch.load)
    for module in (controller, simple_storage):
        monkeypatch.setattr(module, "pickle", pickle)
    with torch.serialization.safe_globals([]):
        weights_only.load_weights_only()
        weights_only.load_queue_safely()
        yield


def test_verls_state_loads_and_a_program_does_not_run(tmp_path, torch):
    state = {
        "rng": {
            "cpu": torch.get_rng_state(),
            "numpy": np.random.get_state(),
            "random": random.getstate(),
        },
        "lr_scheduler": {"base_lrs": [1e-4], "last_epoch": np.int64(3)},
    }
    torch.save(state, tmp_path / "extra_state.pt")
    loaded = torch.load(tmp_path / "extra_state.pt", weights_only=False)
    np.random.set_state(loaded["rng"]["numpy"])
    assert loaded["rng"]["random"] == random.getstate()
    assert loaded["lr_scheduler"]["last_epoch"] == 3
    for at, content in enumerate(
        [{"model": Stranger(tmp_path / "ran")}, Stranger(tmp_path / "ran")]
    ):
        torch.save(content, tmp_path / f"{at}.pt")
        for path in (tmp_path / f"{at}.pt", str(tmp_path / f"{at}.pt")):
            with pytest.raises(CheckpointError, match=rf"{at}\.pt: .*could run code"):
                torch.load(path, map_location="cpu", weights_only=False)
    assert not (tmp_path / "ran").exists()


def test_tensors_between_processes_are_as_before(torch):
    assert torch.equal(pickle.loads(pickle.dumps(torch.arange(3))), torch.arange(3))


def test_a_queues_checkpoint_loads_and_a_program_does_not_run(tmp_path, torch, weights_only):
    from transfer_queue.controller import DataPartitionStatus, FieldMeta
    from transfer_queue.storage.simple_storage import StorageUnitData

    unit = StorageUnitData(storage_size=4)
    extra = {
        "messages": [{"role": "user", "content": "x"}],
        "scores": np.array([1.5]),
        "none": None,
    }
    unit.put_data({"responses": [torch.arange(3)], "extra_fields": [extra]}, [7])
    unit.save_checkpoint(tmp_path / "unit.pkl", "unit")
    again = StorageUnitData(storage_size=4)
    again.load_checkpoint(tmp_path / "unit.pkl")
    found = again.get_data(["responses", "extra_fields"], [7])
    assert torch.equal(found["responses"][0], torch.arange(3))
    assert found["extra_fields"][0]["messages"] == extra["messages"]

    partition = DataPartitionStatus(partition_id="train", global_indexes={1})
    partition.field_metadata["responses"] = FieldMeta(global_indexes={1}, dtype=torch.int64)
    with open(tmp_path / "controller.pkl", "wb") as file:
        weights_only._dump({"partitions": {"train": partition.to_snapshot()}}, file, 2)
    with open(tmp_path / "controller.pkl", "rb") as file:
        loaded = weights_only._load(file)["partitions"]["train"]
    assert loaded == partition

    for save in (pickle.dump, torch.save):
        with open(tmp_path / "unit.pkl", "wb") as file:
            save({"field_data": Stranger(tmp_path / "ran")}, file)
        with pytest.raises(pickle.UnpicklingError):
            again.load_checkpoint(tmp_path / "unit.pkl")
    assert not (tmp_path / "ran").exists()


def test_shards_of_a_stranger_are_not_merged(tmp_path, torch):
    from transformers import Qwen2Config

    from coding_model_project.verl_ext.trainers import merger

    torch.save({"w": Stranger(tmp_path / "ran")}, tmp_path / "model_world_size_1_rank_0.pt")
    (tmp_path / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    Qwen2Config(architectures=["Qwen2ForCausalLM"]).save_pretrained(tmp_path / "huggingface")
    with pytest.raises(CheckpointError, match=r"rank_0\.pt: .*could run code"):
        merger.merge(tmp_path, tmp_path / "merged")
    assert not (tmp_path / "ran").exists()
