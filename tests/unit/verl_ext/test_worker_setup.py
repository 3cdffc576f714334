"""Sockets of a run that strangers cannot speak to, over the real libraries."""

from __future__ import annotations

import importlib
import os
import pickle
import random
from contextlib import suppress
from datetime import timedelta

import numpy as np
import psutil
import pytest
import zmq

from coding_model_project.errors import CheckpointError
from coding_model_project.verl_ext.cluster import worker_setup

pytestmark = pytest.mark.verl


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Stand in for the secret that Ray's head keeps."""
    monkeypatch.setattr(worker_setup, "secret", lambda: b"s" * 32)


@pytest.fixture
def queue(monkeypatch):
    """TransferQueue's modules, closed to strangers for one test."""
    from transfer_queue import controller
    from transfer_queue.storage import simple_storage
    from transfer_queue.storage.managers import base
    from transfer_queue.utils import zmq_utils

    for module in (controller, simple_storage, base, zmq_utils):
        monkeypatch.setattr(module, "create_zmq_socket", zmq_utils.create_zmq_socket)
    worker_setup.encrypt_transfer_queue()
    return zmq_utils


def test_a_strangers_message_never_arrives_and_ones_own_does(queue):
    with zmq.Context() as context:
        server = queue.create_zmq_socket(context, zmq.ROUTER, "127.0.0.1")
        port = server.bind_to_random_port("tcp://127.0.0.1")
        stranger = context.socket(zmq.DEALER)
        other = context.socket(zmq.DEALER)
        other.curve_publickey, other.curve_secretkey = zmq.curve_keypair()
        other.curve_serverkey, _ = zmq.curve_keypair()
        for one in (stranger, other):
            one.linger = 0
            one.connect(f"tcp://127.0.0.1:{port}")
            with suppress(zmq.Again):  # refused already
                one.send_multipart([b"\xc1\xfe\xed", pickle.dumps(print)], zmq.NOBLOCK)
        assert server.poll(500) == 0
        own = queue.create_zmq_socket(context, zmq.DEALER, "127.0.0.1", identity=b"own")
        own.connect(f"tcp://127.0.0.1:{port}")
        own.send_multipart([b"hello"])
        assert server.poll(5000)
        assert server.recv_multipart() == [b"own", b"hello"]
        server.send_multipart([b"own", b"welcome"])
        assert own.recv_multipart() == [b"welcome"]
        for one in (server, stranger, other, own):
            one.close(linger=0)


def test_the_storages_own_threads_still_speak(queue):
    with zmq.Context() as context:
        one, other = (queue.create_zmq_socket(context, zmq.DEALER, "127.0.0.1") for _ in range(2))
        one.bind("inproc://workers")
        other.connect("inproc://workers")
        one.send(b"work")
        assert other.poll(5000) and other.recv() == b"work"
        one.close(linger=0)
        other.close(linger=0)


def test_a_store_listens_on_its_own_address_only(monkeypatch):
    from torch import distributed

    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    for module in (distributed, rendezvous):
        monkeypatch.setattr(module, "TCPStore", module.TCPStore)
    worker_setup.bind_stores()
    wait = {"timeout": timedelta(seconds=20), "wait_for_workers": False, "multi_tenant": True}
    before = _listening()
    store = rendezvous.TCPStore("127.0.0.1", 0, is_master=True, **wait)
    assert {address for address, _ in _listening() - before} == {"127.0.0.1"}
    shared = distributed.TCPStore("127.0.0.1", store.port, is_master=True, **wait)
    client = distributed.TCPStore("127.0.0.1", store.port, is_master=False, **wait)
    client.set("key", "value")
    assert store.get("key") == shared.get("key") == b"value"


def _listening():
    found = psutil.Process(os.getpid()).net_connections("tcp")
    return {tuple(one.laddr) for one in found if one.status == psutil.CONN_LISTEN}


# Checkpoints of training state, honest and hostile, through the loaders of verl and TransferQueue.


@pytest.fixture(scope="module")
def torch():
    import torch

    return torch


class Stranger:
    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return (open, (self.mark, "w"))


@pytest.fixture(autouse=True)
def _safe(monkeypatch, torch):
    from transfer_queue import controller
    from transfer_queue.storage import simple_storage

    monkeypatch.setattr(torch, "load", torch.load)
    for module in (controller, simple_storage):
        monkeypatch.setattr(module, "pickle", pickle)
    with torch.serialization.safe_globals([]):
        worker_setup.load_weights_only()
        worker_setup.load_queue_safely()
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


def test_a_queues_checkpoint_loads_and_a_program_does_not_run(tmp_path, torch):
    from transfer_queue import controller
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
        controller.pickle.dump({"partitions": {"train": partition.to_snapshot()}}, file, 2)
    with open(tmp_path / "controller.pkl", "rb") as file:
        loaded = controller.pickle.load(file)["partitions"]["train"]
    assert loaded == partition

    for save in (pickle.dump, torch.save):
        with open(tmp_path / "unit.pkl", "wb") as file:
            save({"field_data": Stranger(tmp_path / "ran")}, file)
        with pytest.raises(pickle.UnpicklingError):
            again.load_checkpoint(tmp_path / "unit.pkl")
    assert not (tmp_path / "ran").exists()


def test_shards_of_a_stranger_are_not_merged(tmp_path, torch):
    from transformers import Qwen2Config

    from coding_model_project.verl_ext.trainers import verl_checkpoints

    torch.save({"w": Stranger(tmp_path / "ran")}, tmp_path / "model_world_size_1_rank_0.pt")
    (tmp_path / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    Qwen2Config(architectures=["Qwen2ForCausalLM"]).save_pretrained(tmp_path / "huggingface")
    with pytest.raises(CheckpointError, match=r"rank_0\.pt: .*could run code"):
        verl_checkpoints.merge_shards(tmp_path, tmp_path / "merged")
    assert not (tmp_path / "ran").exists()
