"""A process that all workers of a node share."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import RayActorError

from coding_model_project.errors import SandboxError
from coding_model_project.verl_ext.cluster.nodes import (
    answer_of,
    first_line,
    own_node_id,
    pinned,
)


class OnNode:
    """A worker's client of a Ray actor on its node; the first client starts the actor.

    Args:
        actor: class of the actor.
        arguments: what it is made with.
        name: name of the actor, to which the node is added.
        task: what the actor does, for messages.
    """

    def __init__(self, actor: type, *arguments: Any, name: str, task: str) -> None:
        self._class, self._arguments, self._name, self._task = actor, arguments, name, task
        self._actor: Any = None

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the actor.

        Raises:
            CodingModelError: the method's own error.
            SandboxError: the process died; the next call starts another.
        """
        if self._actor is None:
            self._actor = self._joined()
        actor = self._actor
        try:
            return await answer_of(getattr(actor, method).remote(*arguments))
        except RayActorError as error:
            if self._actor is actor:
                self._actor = None
            raise SandboxError(f"the process that {self._task} died: {first_line(error)}") from None

    def _joined(self) -> Any:
        node = own_node_id()
        options = {"name": f"{self._name} on {node}", "get_if_exists": True, "num_cpus": 0}
        return ray.remote(self._class).options(**options, **pinned(node)).remote(*self._arguments)
