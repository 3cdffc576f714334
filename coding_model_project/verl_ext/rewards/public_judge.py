"""A judge of public tests for all agent-loop workers of a node, in one process.

verl starts several workers per node; a judge in each would multiply the limit on programs at once. The
process also keeps the hidden tests out of the workers, which send a completion and get back what the
model may see.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from coding_model_project.configs.schema import CodingConfig
from coding_model_project.episodes.repair import Seen, look_at
from coding_model_project.errors import CodingModelError, SandboxError
from coding_model_project.verl_ext.cluster.nodes import first_line, own_node_id, pinned
from coding_model_project.verl_ext.rewards.judging import JudgePool


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


class PublicJudge:
    """An agent-loop worker's client of the node's judge; the first client starts the judge."""

    def __init__(self, coding: CodingConfig) -> None:
        self._coding = coding
        self._actor: Any = None

    async def look(self, problem_id: str, completion: str) -> Seen:
        """Judge an attempt.

        Raises:
            UngradableError: there is no truthful verdict; the model then sees nothing.
        """
        if self._actor is None:
            self._actor = self._joined()
        actor = self._actor
        try:
            return await actor.look.remote(problem_id, completion)
        except RayTaskError as error:
            if isinstance(error.cause, CodingModelError):
                raise error.cause from None
            raise
        except RayActorError as error:
            if self._actor is actor:
                self._actor = None  # the next attempt starts another
            raise SandboxError(
                f"the process that judges public tests died: {first_line(error)}"
            ) from None

    def _joined(self) -> Any:
        node = own_node_id()
        return (
            ray.remote(_PublicJudge)
            .options(
                name=f"public judge of {self._coding.run_dir} on {node}",
                get_if_exists=True,
                num_cpus=0,
                **pinned(node),
            )
            .remote(self._coding)
        )
