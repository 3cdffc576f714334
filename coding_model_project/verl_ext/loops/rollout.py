"""Client of verl's rollout for one sample, with the timings and fields that the sample's output needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)
from verl.utils.profiler import simple_timer

Sampling = dict[str, Any]
"""Sampling parameters of `AgentLoopBase.run`."""


class Rollout:
    """The requests of one sample. They share a request id, so the server that cached the sample answers.

    `metrics` are verl's timings. The arguments are those of `AgentLoopBase.run`.
    """

    def __init__(self, loop: AgentLoopBase, sampling: Sampling, row: Mapping[str, Any]) -> None:
        self._loop: Any = loop
        self._sampling = sampling
        self._priority = int(row.get("priority", 0))
        # As in verl's single-turn loop, where the random draws depend on the order of requests.
        deterministic = loop.rollout_config.full_determinism
        self._request = f"det-{self._priority}" if deterministic else uuid4().hex
        self.metrics: dict[str, Any] = {"num_preempted": -1}
        self._extra: dict[str, Any] = {}

    @property
    def gives_log_probs(self) -> bool:
        """Return whether answers have log-probabilities."""
        return bool(self._sampling.get("logprobs"))

    async def generate(self, prompt: Sequence[int], **params: Any) -> Any:
        """Return verl's TokenOutput for a prompt.

        Args:
            params: overrides of the sample's sampling parameters.
        """
        with simple_timer("generate_sequences", self.metrics):
            output = await self._loop.server_manager.generate(
                request_id=self._request,
                prompt_ids=list(prompt),
                sampling_params=self._sampling | params,
                priority=self._priority,
            )
        if output.num_preempted is not None:
            before = max(0, self.metrics["num_preempted"])
            self.metrics["num_preempted"] = before + output.num_preempted
        began_at = self._extra.get("min_global_steps")
        self._extra |= output.extra_fields
        if began_at is not None:  # keep the version of the weights that generated the first answer
            self._extra["min_global_steps"] = began_at
        return output

    def output(
        self,
        *,
        prompt: list[int],
        response: list[int],
        mask: list[int],
        log_probs: list[float] | None,
        num_turns: int,
        extra: Mapping[str, Any],
    ) -> AgentLoopOutput:
        """Return the output that verl trains on.

        Args:
            extra: fields that the reward manager gets as `tool_extra_fields`.
        """
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=response,
            response_mask=mask,
            response_logprobs=log_probs,
            num_turns=num_turns,
            metrics=AgentLoopMetrics(**self.metrics),
            extra_fields={**self._extra, "turn_scores": [], "tool_rewards": [], **extra},
        )
