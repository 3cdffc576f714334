"""Whether a Ray cluster that a run has joined can hold it: verl waits for ever where it cannot."""

from __future__ import annotations

import time
from collections.abc import Mapping

from omegaconf import DictConfig

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.machine_checks import UNITS, cpu_need

WAIT_S = 30.0
"""For what a run before this one gives back."""


def check_capacity(config: DictConfig, wait_s: float = WAIT_S) -> None:
    """Make sure that the cluster's free resources hold what verl reserves.

    Raises:
        ConfigError: they do not; says what is missing, and where.
    """
    import ray._private.state as state

    deadline = time.monotonic() + wait_s
    while message := missing(config, state.available_resources_per_node()):
        if time.monotonic() > deadline:
            raise ConfigError(message)
        time.sleep(1.0)


def missing(config: DictConfig, nodes: Mapping[str, Mapping[str, float]]) -> str:
    """Return a message about the resources that nodes lack; empty if they suffice.

    Args:
        nodes: the free resources of each.
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
            f"have trainer.n_gpus_per_node={gpus} GPUs and {need.per_node} CPUs free: end other runs, or "
            "lower one of the two keys"
        )
    free = int(sum(node.get("CPU", 0) for node in nodes.values()))
    if free < need.total:
        least = max(1, need.units - (need.total - free))
        way = f"{UNITS}={least}" if free > need.others else "more nodes, or fewer GPUs"
        return (
            f"{UNITS}={need.units}: verl reserves {need.total} CPUs with it, and the cluster has {free} "
            f"free; the run would wait for ever: use {way}"
        )
    return ""
