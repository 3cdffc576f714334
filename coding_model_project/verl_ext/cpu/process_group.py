"""The process group that verl requests on a CPU.

verl passes backend=f"cpu:gloo,{device}:{backend}", here "cpu:gloo,cpu:gloo", which torch rejects as a
duplicate device type. torch looks up registered backend names before it parses the string. Registering
this name therefore needs no patch of verl or torch.
"""

from __future__ import annotations

import os
from typing import Any

import psutil
import torch.distributed as dist

NAME = "cpu:gloo,cpu:gloo"


def register() -> None:
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, gloo_group, devices=["cpu"])


def gloo_group(store: Any, rank: int, size: int, timeout: Any) -> Any:
    """Return a process group over gloo that other nodes can reach."""
    if size > 1:
        _choose_interface()
    return dist.ProcessGroupGloo(store, rank, size, timeout)


def _choose_interface() -> None:
    """Make gloo use the interface of this node's address in Ray.

    By default gloo resolves the host name, which on many clusters is the loopback address.
    """
    import ray

    if not ray.is_initialized():  # torchrun's ranks
        return
    address = ray.util.get_node_ip_address()
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address == address for one in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            return
