"""Membership of a run in a Ray cluster: checks of its nodes, cleanup on them, names of lost ones."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import ray
from omegaconf import DictConfig
from ray.exceptions import RayError

from coding_model_project.errors import ClusterError, ConfigError
from coding_model_project.isolation import processes
from coding_model_project.launch.checks.machine_checks import joined_ray
from coding_model_project.launch.sizing import free_memory_gb, needed_gb
from coding_model_project.verl_ext.cluster.node_checks import check_nodes
from coding_model_project.verl_ext.cluster.nodes import (
    Node,
    alive_nodes,
    cause_of,
    own_node_id,
    pinned,
)

_ANSWER_S = 300.0
_REACHED_S = 3.0


@contextlib.contextmanager
def in_cluster(config: DictConfig) -> Iterator[Sequence[Node]]:
    """Check the nodes of the Ray that this run has joined, and clean them up when the run ends.

    Yields:
        The nodes.

    Raises:
        ClusterError: there are too few nodes, or one does not answer.
        ConfigError: as `node_checks.check_nodes`, or a node has too little memory.
        StorageError: as `node_checks.check_nodes`.
    """
    nodes = alive_nodes()
    _check_number(config, nodes)
    actor: Any = ray.remote(num_cpus=0)(_Guard)
    token, folder = processes.own_temporary_files()
    own = own_node_id()
    guards = {
        node: actor.options(**pinned(node.id)).remote(token, folder)
        for node in nodes
        if node.id != own
    }
    for node, guard in guards.items():
        _check_memory(config, node, _answer(node, guard.available_gb.remote()))
    check_nodes(config)  # after the guards, which make the folder whose disk it looks at
    yield nodes  # this frame keeps the guards alive


def lost(nodes: Sequence[Node], config: DictConfig) -> str:
    """Return a remark for a run's error that names its lost nodes and the fix; empty if none is lost."""
    try:
        reached = {node.id for node in alive_nodes() if _listens(node)} if nodes else set()
    except (RayError, RuntimeError, ConnectionError):
        return "; Ray's head no longer answers"
    gone = [node for node in nodes if node.id not in reached]
    if not gone:
        return ""
    return (
        f"; Ray has lost {', '.join(map(str, gone))}; run `ray start --address={joined_ray(config)}` "
        "there again, then the same command, which resumes the run"
    )


def _listens(node: Node) -> bool:
    """Return whether a node accepts connections. Ray itself notices a lost node after about a minute."""
    try:
        socket.create_connection((node.address, node.port), timeout=_REACHED_S).close()
    except OSError:
        return False
    return True


class _Guard:
    """A process on another node that, when it ends, ends all processes of the run there."""

    def __init__(self, token: str, folder: str) -> None:
        if token:
            processes.stand_in(token, folder)

    def available_gb(self) -> float:
        return free_memory_gb()


def _check_number(config: DictConfig, nodes: Sequence[Node]) -> None:
    trainer = config.trainer
    able = [node for node in nodes if node.gpus >= trainer.n_gpus_per_node]
    if len(able) >= trainer.nnodes:
        return
    have = ", ".join(f"{node} has {node.gpus:g}" for node in nodes)
    slots = " (logical: `ray start --num-gpus=N`)" if trainer.device == "cpu" else ""
    address = joined_ray(config)
    raise ClusterError(
        f"trainer.nnodes={trainer.nnodes}: Ray at {address} has {len(able)} node(s) with "
        f"trainer.n_gpus_per_node={trainer.n_gpus_per_node} GPUs{slots}: {have}; run `ray start "
        f"--address={address}` on more nodes, or lower trainer.nnodes"
    )


def _check_memory(config: DictConfig, node: Node, available_gb: float) -> None:
    needed = needed_gb(config, longest=0)
    if available_gb < needed:
        raise ConfigError(
            f"node {node}: coding.min_memory_gb={needed:g}: {available_gb:.1f} GB of memory are free "
            "there; free some, or lower the batch size and coding.min_memory_gb"
        )


def _answer(node: Node, answer: Any) -> Any:
    """Return a node's answer.

    Raises:
        ClusterError: the node does not answer.
    """
    try:
        return ray.get(answer, timeout=_ANSWER_S)
    except (RayError, TimeoutError) as error:
        raise ClusterError(
            f"node {node}: no process starts there ({cause_of(error)}); see its Ray's logs "
            "(/tmp/ray/session_latest/logs), or run `ray stop` there to go without it"
        ) from error
