"""Checkpoint engine that sends the trainer's weights to rollout processes without an accelerator.

verl's own engines need CUDA, RDMA or an NPU. This one broadcasts by gloo in its own process group, beside
the trainer's, and builds the group anew for each sync. The keys `backend` and `custom_backend_module` of
`actor_rollout_ref.rollout.checkpoint_engine` select it (verl.checkpoint_engine.CheckpointEngineRegistry,
a public extension point).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import ray
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

from coding_model_project.verl_ext.cpu.process_group import gloo_group

NAME = "cpu"
_TIMEOUT = timedelta(minutes=30)
"""Time-out of gloo; `coding.weight_sync_timeout_s` ends the run earlier."""

Weights = Iterator[tuple[str, torch.Tensor]]


_Store: Any = dist.TCPStore
_registry: Any = CheckpointEngineRegistry  # its `register` lacks @staticmethod


@_registry.register(NAME)
class CPUCheckpointEngine(CheckpointEngine):
    """An engine in which the first training rank sends and all rollout ranks receive.

    Args:
        bucket_size: bytes per broadcast; a larger tensor is sent alone.
        is_master: true in the process of the first training rank.
    """

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._bucket_size = bucket_size
        self._is_master = is_master
        self._store: Any = None
        self._group: Any = None

    def prepare(self) -> dict[str, Any]:
        """Open the sender's store and return its address."""
        if not self._is_master:
            return {}
        host = ray.util.get_node_ip_address().strip("[]")
        self._store = _Store(host, 0, is_master=True, timeout=_TIMEOUT, wait_for_workers=False)
        return {"host": host, "port": self._store.port}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Return the arguments of `init_process_group` for each training and each rollout rank."""
        size = 1 + rollout_world_size

        def arguments(ranks: list[int]) -> dict[str, list[Any]]:
            n = len(ranks)
            return {"rank": ranks, "size": [size] * n, "sender": [metadata[0]] * n}

        idle = [-1] * (actor_wg_world_size - 1)
        return arguments([0, *idle]), arguments(list(range(1, size)))

    def init_process_group(self, rank: int, size: int, sender: dict[str, Any]) -> None:  # pyrefly: ignore[bad-override]  # verl has **kwargs
        """Join the group of this sync, unless the rank is below 0."""
        if rank < 0:
            return
        if self._store is None:
            address = (sender["host"], sender["port"])
            self._store = _Store(*address, is_master=False, timeout=_TIMEOUT)
        store = PrefixStore("weights", self._store)
        self._group = gloo_group(store, rank, size, _TIMEOUT)

    def finalize(self) -> None:
        """Leave the group of this sync."""
        self._group = self._store = None

    async def send_weights(self, weights: Weights, global_steps: int | None = None) -> None:
        """Broadcast all weights in buckets."""
        if self._group is None:
            for _ in weights:  # all training ranks must take part in gathering a sharded weight
                pass
            return
        bucket: list[tuple[str, torch.Tensor]] = []
        size = 0
        for name, weight in weights:
            if bucket and size + weight.nbytes > self._bucket_size:
                await asyncio.to_thread(self._send, bucket)
                bucket, size = [], 0
            # A copy, since the trainer may reuse its buffer.
            bucket.append((name, weight.detach().cpu().clone()))
            size += weight.nbytes
        if bucket:
            await asyncio.to_thread(self._send, bucket)
        await asyncio.to_thread(self._send, [])

    async def receive_weights(  # pyrefly: ignore[bad-override]  # verl annotates what is yielded
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yield the weights as they arrive."""
        while bucket := await asyncio.to_thread(self._receive):
            for named in bucket:
                yield named

    def _send(self, bucket: list[tuple[str, torch.Tensor]]) -> None:
        """Broadcast names, shapes and dtypes, then the tensors; an empty bucket marks the end."""
        shapes = [(name, *weight.shape, str(weight.dtype)) for name, weight in bucket]
        header = torch.frombuffer(bytearray(json.dumps(shapes).encode()), dtype=torch.uint8)
        self._broadcast(torch.tensor([len(header)]))
        self._broadcast(header)
        for _, weight in bucket:
            self._broadcast(_bytes_of(weight))

    def _receive(self) -> list[tuple[str, torch.Tensor]]:
        length = self._broadcast(torch.zeros(1, dtype=torch.int64))
        header = self._broadcast(torch.empty(int(length), dtype=torch.uint8))
        bucket: list[tuple[str, torch.Tensor]] = []
        for name, *shape, dtype in json.loads(header.numpy().tobytes()):
            weight = torch.empty(shape, dtype=getattr(torch, dtype.removeprefix("torch.")))
            self._broadcast(_bytes_of(weight))
            bucket.append((name, weight))
        return bucket

    def _broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Send from the first rank; receive in place on all others."""
        self._group.broadcast(tensor, root=0).wait()
        return tensor


def _bytes_of(weight: torch.Tensor) -> torch.Tensor:
    """Return a tensor's memory as flat bytes, since gloo does not support every dtype."""
    return weight.contiguous().view(-1).view(torch.uint8)
