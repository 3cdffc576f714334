"""The process group verl asks for on a CPU.

verl passes backend=f"cpu:gloo,{device}:{backend}", here "cpu:gloo,cpu:gloo", which torch refuses as a
duplicate device type. torch looks registered backend names up before it parses the string, so
registering that very name needs no patch of either.
"""

import torch.distributed as dist

NAME = "cpu:gloo,cpu:gloo"


def register() -> None:
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(
            NAME,
            lambda store, rank, size, timeout: dist.ProcessGroupGloo(store, rank, size, timeout),
            devices=["cpu"],
        )
