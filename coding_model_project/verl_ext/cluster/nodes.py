"""The nodes of a Ray that a run joins: checked before it, tidied after it, named when one is lost."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from coding_model_project.errors import ClusterError
from coding_model_project.isolation import processes
from coding_model_project.launch.joining import joined_ray
from coding_model_project.verl_ext.cluster import probe

_PROBE_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the cluster that a run is in."""

    id: str
    host: str
    address: str
    gpus: float
    """Logical ones under the CPU profile: the ranks that it may have."""

    def __str__(self) -> str:
        return f"{self.host} ({self.address})"


def here() -> NodeAffinitySchedulingStrategy:
    """Return the strategy that keeps an actor on the node of this process."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def alive() -> list[Node]:
    """Return the nodes that Ray has now."""
    return [
        Node(
            id=node["NodeID"],
            host=node["NodeManagerHostname"],
            address=node["NodeManagerAddress"],
            gpus=node["Resources"].get("GPU", 0),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


@contextlib.contextmanager
def on_all_nodes(config: DictConfig) -> Iterator[Sequence[Node]]:
    """Check the nodes of the Ray that this run has joined, and leave nothing of it on them afterwards.

    Yields:
        The nodes.

    Raises:
        ClusterError: there are too few, or one of them cannot do its part.
        ConfigError: one has too little memory, or does not see a folder of the configuration.
    """
    nodes = alive()
    _check_number(config, nodes)
    own = ray.get_runtime_context().get_node_id()
    _check_each(config, nodes, own)
    actor: Any = ray.remote(num_cpus=0)(_Guard)
    token, folder = os.environ.get(processes.TOKEN), os.environ.get("TMPDIR", "")
    away = [node for node in nodes if token and node.id != own]
    guards = [actor.options(scheduling_strategy=_on(node)).remote(token, folder) for node in away]
    for node, guard in zip(away, guards, strict=True):
        _answer(node, guard.__ray_ready__.remote())
    yield nodes  # guards live as long as this frame refers to them


def lost(nodes: Sequence[Node]) -> str:
    """Return a remark for the error that ended a run: which of its nodes are gone, and the way out."""
    try:
        there = {node.id for node in alive()} if nodes else set()
    except (RayError, RuntimeError, ConnectionError):
        return "; Ray's head does not answer any more"
    gone = [node for node in nodes if node.id not in there]
    if not gone:
        return ""
    return (
        f"; Ray has lost {', '.join(map(str, gone))}: run `ray start --address=HEAD` there again, then "
        "the same command, which resumes"
    )


class _Guard:
    """A process on another node that ends, when it ends itself, all that the run has there."""

    def __init__(self, token: str, folder: str) -> None:
        processes.stand_in(token, folder)


def _on(node: Node) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node.id, soft=False)


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


def _check_each(config: DictConfig, nodes: Sequence[Node], own: str) -> None:
    """Compare what each node says of itself with what holds here."""
    run_dir = Path(config.coding.run_dir)
    mark = run_dir / f".node-probe-{secrets.token_hex(4)}"
    wanted = probe.wanted_paths(config)
    mark.write_text("")
    try:
        look: Any = ray.remote(num_cpus=0, max_retries=0)(probe.look_function())
        asked = [
            (node, look.options(scheduling_strategy=_on(node)).remote(str(mark), list(wanted)))
            for node in nodes
        ]
        mine = probe.look_function()(str(mark), [])
        for node, answer in asked:
            if node.id == own:
                continue
            seen = _answer(node, answer)
            probe.compare(config, f"node {node}", seen, mine, wanted)
    finally:
        with contextlib.suppress(OSError):
            mark.unlink()


def _answer(node: Node, answer: Any) -> Any:
    """Return a node's answer.

    Raises:
        ClusterError: it gives none.
    """
    try:
        return ray.get(answer, timeout=_PROBE_TIMEOUT_S)
    except (RayError, TimeoutError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ClusterError(
            f"node {node}: it could not be looked at ({said[-1].strip()}); see its Ray's logs "
            "(/tmp/ray/session_latest/logs), or run `ray stop` there to go without it"
        ) from error
