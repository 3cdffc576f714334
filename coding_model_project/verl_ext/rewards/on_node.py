"""Processes that all workers of a node share, such as the judge of public tests for agent loops.

verl starts several workers per node; a judge in each would multiply the limit on programs at once. The
process also keeps the hidden tests out of the workers, which send a completion and get back what the
model may see.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import RayActorError

from coding_model_project.configs.schema import CodingConfig
from coding_model_project.episodes.repair import Seen, look_at
from coding_model_project.errors import SandboxError
from coding_model_project.verl_ext.cluster.nodes import (
    answer_of,
    first_line,
    own_node_id,
    pinned,
)
from coding_model_project.verl_ext.rewards.judging import JudgePool


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


class _PublicJudge:
    """The Ray actor of the judge."""

    def __init__(self, coding: CodingConfig) -> None:
        self._pool = JudgePool(coding)
        self._style = coding.prompt
        self._max_bytes = coding.repair.observation_bytes

    async def look(self, problem_id: str, completion: str) -> Seen:
        problem = self._pool.problem(problem_id)
        judge = await self._pool.judge()
        return await look_at(
            problem, completion, judge.public, style=self._style, max_bytes=self._max_bytes
        )


class PublicJudge(OnNode):
    """An agent-loop worker's client of the node's judge."""

    def __init__(self, coding: CodingConfig) -> None:
        name = f"public judge of {coding.run_dir}"
        super().__init__(_PublicJudge, coding, name=name, task="judges public tests")

    async def look(self, problem_id: str, completion: str) -> Seen:
        """Judge an attempt.

        Raises:
            UngradableError: there is no truthful verdict; the model then sees nothing.
        """
        return await self.call("look", problem_id, completion)
