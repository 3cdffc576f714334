"""verl agent loop for an episode of attempts and repairs; `episodes.repair` has the rules.

    prompt | attempt 0 | observation | attempt 1 | observation | attempt 2
    mask     1 1 1 1 1   0 0 0 0 0 0   1 1 1 1 1   0 0 0 0 0 0   1 1 1 1 1

The model gets another attempt if `data.max_response_length` has room for the observation and a whole
attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.utils.profiler import simple_timer

from coding_model_project.configs.schema import coding_of
from coding_model_project.episodes.repair import Seen, attempts
from coding_model_project.grading.prompts import Message
from coding_model_project.launch.checks.episode_checks import attempt_tokens
from coding_model_project.verl_ext.loops.conversation import (
    Answer,
    Conversation,
    RunLoop,
    Sampling,
)
from coding_model_project.verl_ext.rewards.judging import ATTEMPTS
from coding_model_project.verl_ext.rewards.on_node import PublicJudge


class RepairLoop(RunLoop[PublicJudge]):
    """An episode of attempts and repairs."""

    places: ClassVar[dict[str, PublicJudge]] = {}

    def place(self) -> PublicJudge:
        return PublicJudge(coding_of(self.config))

    async def sample(
        self, place: PublicJudge, sampling: Sampling, row: Mapping[str, Any]
    ) -> AgentLoopOutput:
        problem_id = str(row["reward_model"]["ground_truth"])
        policy = _Policy(self, await Conversation.begin(self, row["raw_prompt"], sampling, row))

        async def look(answer: Answer) -> Seen:
            with simple_timer("tool_calls", policy.talk.metrics):
                return await place.look(problem_id, answer.text)

        made = await attempts(policy, look, rounds=self.config.coding.repair.rounds)
        plain = [
            {
                "start": attempt.answer.start,
                "end": attempt.answer.end,
                "public_error": attempt.public_error,
                "observation": attempt.observation,
                "judge_s": attempt.judge_s,
            }
            for attempt in made
        ]
        return policy.talk.output(2 * len(made), **{ATTEMPTS: plain})


class _Policy:
    """The model in training, as the episode's `episodes.repair.Model`."""

    def __init__(self, loop: AgentLoopBase, talk: Conversation) -> None:
        self.talk = talk
        self._most = attempt_tokens(loop.config)
        self._max_response: int = loop.rollout_config.response_length

    async def answer(self, repairs: int) -> Answer | None:
        return await self.talk.answer(self._most)

    async def tell(self, message: Message) -> bool:
        # Another whole attempt must fit after the message.
        return await self.talk.tell(message, max_response=self._max_response - self._most)
