"""The nodes of the Ray cluster that this process is in.

Importing this module does not import Ray: what starts Ray first sets its environment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from coding_model_project.errors import CodingModelError

_ACTORS_FIELD = re.compile(r"\t(class_name|ip): ")
"""A line about the actor in the text of Ray's ActorDiedError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the cluster."""

    id: str
    host: str
    address: str
    port: int
    """Port of Ray's process there."""
    cpus: float
    """CPUs that Ray counts; 0 on a head that runs no work."""
    gpus: float
    """GPUs that Ray counts; under the CPU profile logical ones, one per rank."""

    def __str__(self) -> str:
        return f"{self.host} ({self.address})"


def alive_nodes() -> list[Node]:
    """Return the nodes that Ray takes for alive."""
    import ray

    return [
        Node(
            id=node["NodeID"],
            host=node["NodeManagerHostname"],
            address=node["NodeManagerAddress"],
            port=node["NodeManagerPort"],
            cpus=node["Resources"].get("CPU", 0),
            gpus=node["Resources"].get("GPU", 0),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def own_node_id() -> str:
    """Return Ray's id of the node of this process."""
    import ray

    return ray.get_runtime_context().get_node_id()


async def answer_of(call: Any) -> Any:
    """Wait for an actor's answer.

    Raises:
        CodingModelError: the method's own error, instead of Ray's wrapper.
        RayError: any other one, or the actor's end.
    """
    from ray.exceptions import RayTaskError

    try:
        return await call
    except RayTaskError as error:
        if isinstance(error.cause, CodingModelError):
            raise error.cause from None
        raise


def pinned(node_id: str) -> dict[str, Any]:
    """Return the options that place a task or an actor on a node and nowhere else."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}


def _lines(error: BaseException) -> list[str]:
    return (str(error).strip() or type(error).__name__).splitlines()


def first_line(error: BaseException) -> str:
    """Return the first line of an error, in which Ray says what died; its type if it has no text."""
    return _lines(error)[0].strip()


def cause_of(error: BaseException) -> str:
    """Return in one line why work in Ray failed: the last line of Ray's text, or the error's type.

    Of a dead actor, the line names its class and its node, which Ray gives in lines before.
    """
    lines = _lines(error)
    last = lines[-1].strip()
    actor = dict(line.strip().split(": ", 1) for line in lines if _ACTORS_FIELD.match(line))
    if len(actor) < 2:
        return last
    how, advice, _ = last.partition(" Some common causes include:")
    hint = "; its node's `dmesg` shows whether memory ran out" if advice else ""
    how = how.rpartition("Worker exit detail: ")[2].rstrip(".")
    return f"{actor['class_name'].rpartition('.')[2]} on {actor['ip']} died ({how}{hint})"
