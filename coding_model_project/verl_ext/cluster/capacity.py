"""Check that the Ray cluster has the resources that a run reserves; without them verl waits for ever."""

from __future__ import annotations

import time
from collections.abc import Mapping

from omegaconf import DictConfig

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.machine_checks import UNITS, cpu_need

_WAIT_S = 30.0
"""Seconds to wait for resources that an earlier run is still releasing."""


def check_capacity(config: DictConfig) -> None:
    """Make sure that the cluster has free what verl reserves.

    Raises:
        ConfigError: resources are missing; names the keys and the nodes' counts.
    """
    import ray._private.state as state

    deadline = time.monotonic() + _WAIT_S
    while message := missing(config, state.available_resources_per_node()):
        if time.monotonic() > deadline:
            raise ConfigError(message)
        time.sleep(1.0)


def missing(config: DictConfig, nodes: Mapping[str, Mapping[str, float]]) -> str:
    """Return a message about the resources that the nodes lack; empty if they suffice.

    Args:
        nodes: free resources by node.
    """
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
    rollout = config.actor_rollout_ref.rollout
    own = (rollout.nnodes or 0) * rollout.n_gpus_per_node
    wanted = config.trainer.nnodes * gpus + own
    if own and (found := int(sum(node.get("GPU", 0) for node in nodes.values()))) < wanted:
        return (
            f"actor_rollout_ref.rollout.nnodes={rollout.nnodes}: the trainer and the rollout's own "
            f"{own} GPUs make {wanted}, and the cluster has {found} free, so the run would wait for ever; "
            "end other runs, add nodes, or lower the key or actor_rollout_ref.rollout.n_gpus_per_node"
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
