"""A run's place in a Ray cluster: checks of its nodes, cleanup on them, and the names of lost ones.

`in_cluster` asks every node whether it sees the same files, and `check_capacity` whether what verl
reserves is free: without it verl waits for ever. Ray is imported by what starts it.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from coding_model_project.errors import ClusterError, ConfigError
from coding_model_project.isolation import processes
from coding_model_project.launch.checks.machine_checks import (
    CPUS_OF_A_GPU,
    CPUS_OF_A_ROLLOUT_GPU,
    ROLLOUT,
    UNITS,
    joined_ray,
    own_gpus,
    reserved_cpus,
)
from coding_model_project.launch.sizing import free_memory_gb, needed_gb
from coding_model_project.runs.shared_folder import (
    answer,
    conclude,
    full_temporary_disk,
    question,
)
from coding_model_project.verl_ext.cluster.nodes import (
    Node,
    alive_nodes,
    cause_of,
    own_node_id,
    pinned,
)

_ANSWER_S = 300.0
"""Seconds for a node to start a process and to see files that a network file system shows late."""
_REMARK_S = 20.0
"""Seconds for a node's answer when a training has failed."""
_REACHED_S = 3.0
_FREED_S = 30.0
"""Seconds for an earlier run to release its resources."""


@contextlib.contextmanager
def in_cluster(config: DictConfig) -> Iterator[Sequence[Node]]:
    """Check the nodes of the Ray that this run has joined, and clean them up when the run ends.

    Yields:
        The nodes.

    Raises:
        ClusterError: there are too few nodes, or one does not answer.
        ConfigError: as `check_nodes`, or a node has too little memory.
        StorageError: as `check_nodes`.
    """
    import ray

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
    from ray.exceptions import RayError

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
    import ray
    from ray.exceptions import RayError

    try:
        return ray.get(answer, timeout=_ANSWER_S)
    except (RayError, TimeoutError) as error:
        raise ClusterError(
            f"node {node}: no process starts there ({cause_of(error)}); see its Ray's logs "
            "(/tmp/ray/session_latest/logs), or run `ray stop` there to go without it"
        ) from error


def check_nodes(config: DictConfig) -> None:
    """Make sure that all nodes see the run's folder and files, unless only this one runs work.

    Args:
        config: configuration of GRPO, with absolute paths.

    Raises:
        ClusterError: a node does not answer.
        ConfigError: nodes see other files or versions; names each with its key and the fix.
        StorageError: a node's disk is full.
    """
    nodes = _nodes()
    if nodes.keys() <= {own_node_id()}:
        return
    with question(Path(config.coding.run_dir), _files(config)) as request:
        conclude(request, _on_each(nodes, _ANSWER_S, lambda node: (answer, request, node)))


def full_disks() -> str:
    """Return remarks that name the nodes whose disk for temporary files is full; empty if unknown.

    They complete the error that ended a training: a rank that could not write does not name its node.
    """
    with contextlib.suppress(Exception):  # the session itself may be broken
        nodes = _nodes()
        if nodes.keys() <= {own_node_id()}:
            return full_temporary_disk()
        found = _on_each(nodes, _REMARK_S, lambda _: (full_temporary_disk,))
        return "".join(
            f"; node {nodes[node]}{remark}"
            for node, remark in found.items()
            if remark and isinstance(remark, str)
        )
    return ""


def _on_each(
    nodes: Mapping[str, str], timeout_s: float, call: Callable[[str], tuple[Any, ...]]
) -> dict[str, Any]:
    """Call a function on every node.

    Args:
        nodes: host names by Ray's id of the node.
        call: returns the function and its arguments for a node's id.

    Returns:
        Results by the node's id, with a ClusterError for each node without one.
    """
    import ray
    from ray.exceptions import RayError

    refs: dict[Any, str] = {}
    for node in nodes:
        function, *arguments = call(node)
        task: Any = ray.remote(num_cpus=0, max_retries=0)(function)
        refs[task.options(**pinned(node)).remote(*arguments)] = node
    ready, late = ray.wait(list(refs), num_returns=len(refs), timeout=timeout_s)
    found: dict[str, Any] = {
        refs[ref]: ClusterError(f"node {nodes[refs[ref]]} did not answer within {timeout_s:.0f} s")
        for ref in late
    }
    for ref in ready:
        try:
            found[refs[ref]] = ray.get(ref)
        except RayError as error:
            why = f"node {nodes[refs[ref]]} could not answer ({cause_of(error)})"
            found[refs[ref]] = ClusterError(why)
    return found


def _nodes() -> dict[str, str]:
    """Return the host names, by Ray's id, of all nodes that can run work."""
    return {node.id: node.host for node in alive_nodes() if node.cpus}


def _files(config: DictConfig) -> dict[str, Path]:
    """Return the paths that every node reads besides the run's folder, by `key=path`."""
    found = {f"coding.problems={path}": Path(path) for path in config.coding.problems}
    model = Path(config.actor_rollout_ref.model.path).expanduser()
    if model.is_dir():  # otherwise a name on the hub, which each node resolves itself
        found[f"actor_rollout_ref.model.path={model}"] = model
    return found


Free = Mapping[str, Mapping[str, float]]
"""Free resources by node."""


def check_capacity(config: DictConfig, *, alone: bool) -> None:
    """Make sure that the Ray of this process has free what verl reserves.

    Args:
        alone: whether this run has started the Ray, so that no other one can free anything.

    Raises:
        ConfigError: resources are missing; names the keys and the nodes' counts.
    """
    within_s = 0.0 if alone else _FREED_S
    if message := wait_while(lambda nodes: missing_for(config, nodes), within_s):
        own = "; the run's own Ray has ray_kwargs.ray_init.num_cpus and num_gpus, or this machine's"
        raise ConfigError(message + own * alone)


def wait_while(lack: Callable[[Free], str], within_s: float = _FREED_S) -> str:
    """Wait for resources that an earlier run is still releasing.

    Args:
        lack: returns a message about the resources that the nodes lack; empty if they suffice.
        within_s: most seconds to wait.

    Returns:
        The last message; empty if the resources are free.
    """
    import ray._private.state as state

    deadline = time.monotonic() + within_s
    while (message := lack(state.available_resources_per_node())) and time.monotonic() < deadline:
        time.sleep(1.0)
    return message


def missing_for(config: DictConfig, nodes: Free) -> str:
    """Return a message about the resources that a training lacks; empty if they suffice."""
    gpus = config.trainer.n_gpus_per_node
    per_node = CPUS_OF_A_GPU * gpus
    fit = [
        node
        for node in nodes.values()
        if node.get("GPU", 0) >= gpus and node.get("CPU", 0) >= per_node
    ]
    if len(fit) < config.trainer.nnodes:
        return (
            f"trainer.nnodes={config.trainer.nnodes}: {len(fit)} of the cluster's {len(nodes)} nodes "
            f"have trainer.n_gpus_per_node={gpus} GPUs and {per_node} CPUs free; end other runs, or "
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
    units, others = reserved_cpus(config)
    if free < units + others:
        way = f"{UNITS}={free - others}" if free > others else "more nodes, or fewer GPUs"
        return (
            f"{UNITS}={units}: verl reserves {units + others} CPUs with it, and the cluster has {free} "
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
