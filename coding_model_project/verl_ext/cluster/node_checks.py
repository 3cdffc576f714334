"""Checks of every node of a Ray session, by a task on each before a training starts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from coding_model_project.runs.shared_folder import (
    Unanswered,
    answer,
    conclude,
    full_temporary_disk,
    question,
)
from coding_model_project.verl_ext.cluster.nodes import (
    alive_nodes,
    cause_of,
    own_node_id,
    pinned,
)

_ANSWER_S = 300.0
"""Seconds for a node to start a process and to see files that a network file system shows late."""
_REMARK_S = 20.0
"""Seconds for a node's answer when a training has failed."""


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
        first = time.time()
        answers = _on_each(nodes, _ANSWER_S, lambda node: (answer, request, node))
        for warning in conclude(request, answers, (first, time.time())):
            print(f"warning: {warning}", flush=True)  # noqa: T201


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
        Results by the node's id, with an `Unanswered` for each node without one.
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
        refs[ref]: Unanswered(f"node {nodes[refs[ref]]} did not answer within {timeout_s:.0f} s")
        for ref in late
    }
    for ref in ready:
        try:
            found[refs[ref]] = ray.get(ref)
        except RayError as error:
            found[refs[ref]] = Unanswered(
                f"node {nodes[refs[ref]]} could not answer ({cause_of(error)})"
            )
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
