"""Check that the Ray cluster has the resources that verl reserves; without them verl waits for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from omegaconf import DictConfig

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.machine_checks import (
    CPUS_OF_A_ROLLOUT_GPU,
    ROLLOUT,
    UNITS,
    cpu_need,
    own_gpus,
)

Free = Mapping[str, Mapping[str, float]]
"""Free resources by node."""

_WAIT_S = 30.0


def check_capacity(config: DictConfig) -> None:
    """Make sure that the cluster has free what verl reserves.

    Raises:
        ConfigError: resources are missing; names the keys and the nodes' counts.
    """
    if message := wait_while(lambda nodes: missing(config, nodes)):
        raise ConfigError(message)


def wait_while(lack: Callable[[Free], str]) -> str:
    """Wait for resources that an earlier run is still releasing.

    Args:
        lack: returns a message about the resources that the nodes lack; empty if they suffice.

    Returns:
        The last message; empty if the resources are free.
    """
    import ray._private.state as state

    deadline = time.monotonic() + _WAIT_S
    while (message := lack(state.available_resources_per_node())) and time.monotonic() < deadline:
        time.sleep(1.0)
    return message


def missing(config: DictConfig, nodes: Free) -> str:
    """Return a message about the resources that a training lacks; empty if they suffice."""
    need, gpus = cpu_need(config), config.trainer.n_gpus_per_node
    fit = [
        node
        for node in nodes.values()
        if node.get("GPU", 0) >= gpus and node.get("CPU", 0) >= need.per_node
    ]
    if len(fit) < config.trainer.nnodes:
        return (
            f"trainer.nnodes={config.trainer.nnodes}: {len(fit)} of the cluster's {len(nodes)} nodes "
            f"have trainer.n_gpus_per_node={gpus} GPUs and {need.per_node} CPUs free; end other runs, or "
            "lower one of the two keys"
        )
    own = own_gpus(config)
    wanted = config.trainer.nnodes * gpus + own
    if own and (found := int(sum(node.get("GPU", 0) for node in nodes.values()))) < wanted:
        return (
            f"{ROLLOUT}.nnodes={config.actor_rollout_ref.rollout.nnodes}: the trainer and the rollout's "
            f"own {own} GPUs make {wanted}, and the cluster has {found} free; end other runs, add nodes, "
            f"or lower the key or {ROLLOUT}.n_gpus_per_node"
        )
    free = int(sum(node.get("CPU", 0) for node in nodes.values()))
    if free < need.total:
        least = max(1, need.units - (need.total - free))
        way = f"{UNITS}={least}" if free > need.others else "more nodes, or fewer GPUs"
        return (
            f"{UNITS}={need.units}: verl reserves {need.total} CPUs with it, and the cluster has {free} "
            f"free, so the run would wait for ever; use {way}"
        )
    return ""


def missing_replicas(replicas: int, nodes: Free) -> str:
    """Return a message about the resources that replicas with a GPU each lack; empty if they suffice."""
    places = sum(
        int(min(node.get("GPU", 0), node.get("CPU", 0) // CPUS_OF_A_ROLLOUT_GPU))
        for node in nodes.values()
    )
    if places >= replicas:
        return ""
    return (
        f"{replicas} replicas need a GPU and {CPUS_OF_A_ROLLOUT_GPU} CPUs each, and the Ray cluster has "
        f"these free for {places}; end other work on it (`ray status`), or start its nodes with more CPUs"
    )
