"""The process group verl asks for on a CPU.

verl passes backend=f"cpu:gloo,{device}:{backend}", here "cpu:gloo,cpu:gloo", which torch refuses as a
duplicate device type. torch looks registered backend names up before it parses the string, so
registering that very name needs no patch of either.
"""

from __future__ import annotations

import os
from typing import Any

import psutil
import torch.distributed as dist

NAME = "cpu:gloo,cpu:gloo"


def register() -> None:
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _group, devices=["cpu"])


def _group(store: Any, rank: int, size: int, timeout: Any) -> Any:
    if size > 1:
        _choose_interface()
    return dist.ProcessGroupGloo(store, rank, size, timeout)


def _choose_interface() -> None:
    """Have gloo connect by the address that Ray knows this node by.

    gloo would look its host's name up, which on many clusters gives the loopback's address.
    """
    import ray

    if not ray.is_initialized():  # torchrun's ranks
        return
    address = ray.util.get_node_ip_address()
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address == address for one in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            return
