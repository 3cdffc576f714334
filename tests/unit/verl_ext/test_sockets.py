"""Sockets of a run that strangers cannot speak to, over the real libraries."""

from __future__ import annotations

import importlib
import os
import pickle
from datetime import timedelta

import psutil
import pytest
import zmq

from coding_model_project.verl_ext.cluster import sockets

pytestmark = pytest.mark.verl


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Stand in for the secret that Ray's head keeps."""
    monkeypatch.setattr(sockets, "secret", lambda: b"s" * 32)


@pytest.fixture
def queue(monkeypatch):
    """TransferQueue's modules, closed to strangers for one test."""
    from transfer_queue import controller
    from transfer_queue.storage import simple_storage
    from transfer_queue.storage.managers import base
    from transfer_queue.utils import zmq_utils

    for module in (controller, simple_storage, base, zmq_utils):
        monkeypatch.setattr(module, "create_zmq_socket", zmq_utils.create_zmq_socket)
    sockets.encrypt_transfer_queue()
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
            one.send_multipart([b"\xc1\xfe\xed", pickle.dumps(print)])
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
    sockets.bind_stores()
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
