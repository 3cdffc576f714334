"""An episode of attempts and repairs as verl's agent loop; `repair` says what the model is told.

    prompt | attempt 0 | observation | attempt 1 | observation | attempt 2
    mask     1 1 1 1 1   0 0 0 0 0 0   1 1 1 1 1   0 0 0 0 0 0   1 1 1 1 1

An episode ends with an attempt that passes the public tests, that is cut off by its limit, that is the
last one, or after which no observation with another whole attempt fits into `data.max_response_length`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.utils.profiler import simple_timer

from coding_model_project.configs.typed import coding_of
from coding_model_project.errors import CodingModelError
from coding_model_project.launch.checks.repair_config import attempt_tokens
from coding_model_project.verl_ext.loops.conversation import Answer, Conversation
from coding_model_project.verl_ext.rewards.judging import ATTEMPTS, leave_out
from coding_model_project.verl_ext.rewards.public_judge import PublicJudge


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One answer of an episode: where its tokens lie in the response, and what it was told."""

    start: int
    end: int
    public_error: str | None = None
    """What its public tests said; None if they passed or were not asked."""
    observation: str | None = None
    """What the model was told after it; None for the last attempt."""
    judge_s: float = 0.0
    """Of its public tests."""


_judges: dict[str, PublicJudge] = {}
"""This process's one, by its run's folder."""


class RepairLoop(AgentLoopBase):
    """verl makes one for each sample."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rounds: int = self.config.coding.repair.rounds
        self._attempt_tokens = attempt_tokens(self.config)
        self._max_tokens: int = self.rollout_config.response_length

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """One episode.

        Raises:
            UngradableError: its public tests cannot be judged: verl leaves the sample out.
        """
        problem_id = str(kwargs["reward_model"]["ground_truth"])
        try:
            return await self._run(sampling_params, problem_id, kwargs)
        except CodingModelError as error:
            leave_out(Path(self.config.coding.run_dir), kwargs, error)
            raise error.with_traceback(None) from None

    async def _run(
        self, sampling_params: dict[str, Any], problem_id: str, row: Mapping[str, Any]
    ) -> AgentLoopOutput:
        talk = await Conversation.begin(self, row["raw_prompt"], sampling_params, row)
        attempts: list[Attempt] = []
        going_on = True
        while going_on:
            answer = await talk.answer(self._attempt_tokens)
            attempt = Attempt(start=answer.start, end=answer.end)
            going_on = len(attempts) < self._rounds and not answer.cut
            if going_on:
                attempt = await self._look_and_tell(talk, problem_id, answer, attempt)
                going_on = attempt.observation is not None
            attempts.append(attempt)
        return talk.output(2 * len(attempts), **{ATTEMPTS: list(map(asdict, attempts))})

    async def _look_and_tell(
        self, talk: Conversation, problem_id: str, answer: Answer, attempt: Attempt
    ) -> Attempt:
        """Judge an attempt by the public tests and tell the model, if it may answer again."""
        with simple_timer("tool_calls", talk.metrics):
            seen = await self._judge().look(problem_id, answer.text)
        attempt = replace(attempt, public_error=seen.error, judge_s=seen.judge_s)
        if seen.message is None:
            return attempt
        most = self._max_tokens - self._attempt_tokens  # so that another whole attempt fits
        told = await talk.tell(seen.message, max_response=most)
        return replace(attempt, observation=seen.message["content"]) if told else attempt

    def _judge(self) -> PublicJudge:
        run_dir = self.config.coding.run_dir
        if run_dir not in _judges:
            _judges[run_dir] = PublicJudge(coding_of(self.config))
        return _judges[run_dir]
