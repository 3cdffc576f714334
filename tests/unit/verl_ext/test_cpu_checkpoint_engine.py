"""Weights sent by one training rank arrive, whole and in order, at every rollout rank."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = pytest.mark.verl

WEIGHTS = {
    "embedding": (300, 64),  # larger than a bucket
    "norm": (7,),
    "scalar": (),
    "tail": (5, 3),
}


def test_all_weights_arrive_twice_in_a_row(cpu_platform):
    import torch
    from verl.checkpoint_engine import CheckpointEngineRegistry

    from coding_model_project.verl_ext.cpu import checkpoint_engine as engines

    new = CheckpointEngineRegistry.get(engines.NAME)
    sender, idle = new(bucket_size=4096, is_master=True), new(bucket_size=4096)
    receivers = [new(bucket_size=4096) for _ in range(2)]
    sent = {
        name: torch.randn(shape).to(torch.bfloat16 if name == "norm" else torch.float32)
        for name, shape in WEIGHTS.items()
    }

    async def received(engine):
        return {name: weight.clone() async for name, weight in engine.receive_weights()}

    def sync(pool):
        metadata = [engine.prepare() for engine in (sender, idle, *receivers)]
        of_actor, of_rollout = new.build_topology(2, 2, metadata)
        joining = []
        for engines_of, kwargs in (((sender, idle), of_actor), (receivers, of_rollout)):
            for number, engine in enumerate(engines_of):
                own = {key: values[number] for key, values in kwargs.items()}
                joining.append(pool.submit(engine.init_process_group, **own))
        for one in joining:
            one.result(30)
        arriving = [pool.submit(asyncio.run, received(engine)) for engine in receivers]
        asyncio.run(idle.send_weights(iter(sent.items())))
        asyncio.run(sender.send_weights(iter(sent.items())))
        got = [one.result(30) for one in arriving]
        for engine in (sender, idle, *receivers):
            engine.finalize()
        return got

    with ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            for weights in sync(pool):
                assert list(weights) == list(sent)
                assert all(torch.equal(weights[name], sent[name]) for name in sent)
                assert all(weights[name].dtype == sent[name].dtype for name in sent)


def test_gloo_uses_the_address_of_the_node_in_ray(cpu_platform, monkeypatch):
    """By default it uses that of the host name, which other nodes often cannot reach."""
    import os
    import socket
    from types import SimpleNamespace

    import psutil
    import ray
    from verl.checkpoint_engine import CheckpointEngineRegistry

    from coding_model_project.verl_ext.cpu import checkpoint_engine as engines

    address = SimpleNamespace(family=socket.AF_INET, address="10.1.2.3")
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"lo": [], "eth7": [address]})
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.1.2.3")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.setattr(
        engines.dist, "ProcessGroupGloo", lambda *_: os.environ["GLOO_SOCKET_IFNAME"]
    )
    monkeypatch.setattr(engines, "_Store", lambda *_, **__: None)
    engine = CheckpointEngineRegistry.get(engines.NAME)(bucket_size=1)
    monkeypatch.setattr(engines, "PrefixStore", lambda *_: None)
    engine.init_process_group(1, 2, {"host": "10.1.2.4", "port": 1})
    assert engine._group == "eth7"
