"""A judge of public tests for all agent-loop workers of a node, in one process.

verl starts several workers per node; a judge in each would multiply the limit on programs at once. The
process also keeps the hidden tests out of the workers, which send a completion and get back what the
model may see.
"""

from __future__ import annotations

from coding_model_project.configs.schema import CodingConfig
from coding_model_project.episodes.repair import Seen, look_at
from coding_model_project.verl_ext.rewards.judging import JudgePool
from coding_model_project.verl_ext.rewards.on_node import OnNode


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
