"""An episode of attempts and repairs as verl's agent loop; `repair` says what the model is told.

    prompt | attempt 0 | observation | attempt 1 | observation | attempt 2
    mask     1 1 1 1 1   0 0 0 0 0 0   1 1 1 1 1   0 0 0 0 0 0   1 1 1 1 1

An episode ends with an attempt that passes the public tests, that is cut off by its limit, that is the
last one, or after which no observation with another whole attempt fits into `data.max_response_length`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)
from verl.utils.profiler import simple_timer

from coding_model_project.errors import CodingModelError
from coding_model_project.verl_ext.judging import ATTEMPTS, leave_out
from coding_model_project.verl_ext.public_judge import PublicJudge
from coding_model_project.verl_ext.repair_config import attempt_tokens


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


@dataclass(slots=True)
class _Episode:
    """What an episode consists of so far; `ids` is the prompt and the response."""

    messages: list[dict[str, str]]
    ids: list[int]
    mask: list[int]
    """Of the response's tokens: 1 for the model's own."""
    logprobs: list[float] | None
    request: str
    """The same for all attempts: the server that has the prefix in its cache answers again."""
    attempts: list[Attempt] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=lambda: {"num_preempted": -1})
    extra: dict[str, Any] = field(default_factory=dict)


class RepairLoop(AgentLoopBase):
    """verl makes one for each sample."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rounds: int = self.config.coding.repair.rounds
        self._attempt_tokens = attempt_tokens(self.config)
        self._max_tokens: int = self.rollout_config.response_length
        self._tokenizer: Any = self.tokenizer

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
        messages = list(row["raw_prompt"])
        ids = await self.ct_build_initial_tokens(messages)
        logprobs = [] if sampling_params.get("logprobs") else None
        priority = int(row.get("priority", 0))
        # As in verl's single turn: there the order of requests is part of what is drawn.
        request = f"det-{priority}" if self.rollout_config.full_determinism else uuid4().hex
        episode = _Episode(messages=messages, ids=ids, mask=[], logprobs=logprobs, request=request)
        going_on = True
        while going_on:
            tokens = await self._attempt(episode, sampling_params, priority)
            going_on = len(episode.attempts) <= self._rounds and not self._is_cut(tokens)
            if going_on:
                going_on = await self._look_and_tell(episode, problem_id, tokens)
        n_prompt = len(episode.ids) - len(episode.mask)
        attempts = [asdict(attempt) for attempt in episode.attempts]
        return AgentLoopOutput(
            prompt_ids=episode.ids[:n_prompt],
            response_ids=episode.ids[n_prompt:],
            response_mask=episode.mask,
            response_logprobs=episode.logprobs,
            num_turns=2 * len(attempts),
            metrics=AgentLoopMetrics(**episode.metrics),
            extra_fields=episode.extra
            | {"turn_scores": [], "tool_rewards": [], ATTEMPTS: attempts},
        )

    async def _attempt(
        self, episode: _Episode, sampling_params: dict[str, Any], priority: int
    ) -> list[int]:
        """Let the model answer; the tokens of its answer."""
        with simple_timer("generate_sequences", episode.metrics):
            output = await self.server_manager.generate(
                request_id=episode.request,
                prompt_ids=episode.ids,
                sampling_params=sampling_params | {"max_tokens": self._attempt_tokens},
                priority=priority,
            )
        if output.num_preempted is not None:
            before = max(0, episode.metrics["num_preempted"])
            episode.metrics["num_preempted"] = before + output.num_preempted
        began_at = episode.extra.get("min_global_steps")
        episode.extra |= output.extra_fields
        if began_at is not None:  # the weights that the first attempt was made with
            episode.extra["min_global_steps"] = began_at
        start = len(episode.mask)
        merged, episode.mask, episode.logprobs = await self.ct_merge_assistant_token(
            episode.ids,
            output.token_ids,
            episode.mask,
            episode.logprobs,
            assistant_logprobs=None if episode.logprobs is None else output.log_probs,
        )
        episode.ids = merged.token_ids
        episode.attempts.append(Attempt(start=start, end=len(episode.mask)))
        return output.token_ids

    async def _look_and_tell(self, episode: _Episode, problem_id: str, tokens: list[int]) -> bool:
        """Judge the last attempt by the public tests and tell the model; whether it may answer again."""
        answer = self._tokenizer.decode(tokens, skip_special_tokens=True)
        with simple_timer("tool_calls", episode.metrics):
            seen = await self._judge().look(problem_id, answer)
        attempt = replace(episode.attempts[-1], public_error=seen.error, judge_s=seen.judge_s)
        episode.attempts[-1] = attempt
        if seen.message is None:
            return False
        before = [*episode.messages, {"role": "assistant", "content": answer}]
        told = [*before, seen.message]
        merged, mask, logprobs = await self.ct_merge_context_msg(
            before, told, episode.ids, episode.mask, episode.logprobs
        )
        if len(mask) + self._attempt_tokens > self._max_tokens:
            return False
        episode.attempts[-1] = replace(attempt, observation=seen.message["content"])
        episode.messages, episode.ids = told, merged.token_ids
        episode.mask, episode.logprobs = mask, logprobs
        return True

    def _is_cut(self, tokens: list[int]) -> bool:
        """Ended by its limit and not by the model: it is no answer that could be told anything."""
        return len(tokens) >= self._attempt_tokens and tokens[-1] != self._tokenizer.eos_token_id

    def _judge(self) -> PublicJudge:
        run_dir = self.config.coding.run_dir
        if run_dir not in _judges:
            coding: Any = OmegaConf.to_container(self.config.coding, resolve=True)
            _judges[run_dir] = PublicJudge(coding)
        return _judges[run_dir]
