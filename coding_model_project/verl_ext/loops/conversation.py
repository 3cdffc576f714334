"""Clients of verl's rollout: for one sample, and for a conversation as tokens, to train on its answers.

    prompt | answer | observation      | answer | …
    mask     1 1 1    0 0 0 0 0 0 0 0    1 1 1

No text is tokenized twice: the model trains on exactly the tokens of its last request.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)
from verl.utils.profiler import simple_timer

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.prompts import Message
from coding_model_project.verl_ext.rewards.judging import leaving_out

P = TypeVar("P")
T = TypeVar("T")


class RunLoop(AgentLoopBase, Generic[P]):
    """An agent loop of this package's recipes, with what the samples of a process share: their place."""

    places: ClassVar[dict[str, Any]]
    """The place of this process by run folder, one dictionary for each class."""

    @abstractmethod
    def place(self) -> P:
        """Return what this run's samples share; called once."""

    @abstractmethod
    async def sample(self, place: P, sampling: Sampling, row: Mapping[str, Any]) -> Any:
        """Run one sample; verl creates a loop for each."""

    async def run(self, sampling_params: Sampling, **kwargs: Any) -> Any:
        """Run one sample.

        Raises:
            UngradableError: there is no truthful verdict. verl drops the sample, and the run notes it.
        """
        run_dir = self.config.coding.run_dir
        if run_dir not in self.places:
            self.places[run_dir] = self.place()
        with leaving_out(Path(run_dir), kwargs):
            return await self.sample(self.places[run_dir], sampling_params, kwargs)


def only(found: Sequence[T], problem_id: str) -> T:
    """Return the only episode of a trial.

    Raises:
        DataError: the task has several steps.
    """
    if len(found) != 1:
        raise DataError(
            f"{problem_id}: the task has {len(found)} steps; training needs tasks of one step"
        )
    return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the model, and the span of its tokens in the response."""

    text: str
    start: int
    end: int
    truncated: bool
    """Cut off by the token limit."""

    @property
    def tokens(self) -> int:
        return self.end - self.start


class Conversation:
    """A prompt and the response so far, created by `begin`; `metrics` are verl's timings."""

    def __init__(self, loop: AgentLoopBase, sampling: Sampling, row: Mapping[str, Any]) -> None:
        self._loop: Any = loop
        self._rollout = Rollout(loop, sampling, row)
        self.metrics = self._rollout.metrics
        self._messages: list[Message] = []
        self._tools: list[dict[str, Any]] | None = None
        self._ids: list[int] = []
        self._mask: list[int] = []
        self._logprobs: list[float] | None = [] if self._rollout.gives_log_probs else None

    @classmethod
    async def begin(
        cls,
        loop: AgentLoopBase,
        messages: Sequence[Message],
        sampling: Sampling,
        row: Mapping[str, Any],
        *,
        tools: list[dict[str, Any]] | None = None,
    ) -> Self:
        """Start a conversation with these messages as its prompt.

        Args:
            sampling, row: the arguments of `AgentLoopBase.run`.
            tools: schemas of the tools that the chat template shows the model.

        Raises:
            ConfigError: messages and tools exceed the prompt's token limit, where verl would truncate.
        """
        made = cls(loop, sampling, row)
        made._messages, made._tools = list(messages), tools
        made._ids = await made._loop.ct_build_initial_tokens(made._messages, tools=tools)
        most = int(loop.rollout_config.prompt_length)
        if len(made._ids) >= most:
            builder = made._loop.continuous_token_builder
            whole = builder.build_initial_tokens(made._messages, tools=tools)
            if len(whole) > most:
                raise ConfigError(
                    f"data.max_prompt_length={most}: an episode's opening has {len(whole)} tokens, and "
                    "verl would drop the first ones; raise the key"
                )
        return made

    async def answer(self, max_tokens: int) -> Answer:
        """Generate the model's next answer."""
        output = await self._rollout.generate(self._ids, max_tokens=max_tokens)
        start = len(self._mask)
        merged, self._mask, self._logprobs = await self._loop.ct_merge_assistant_token(
            self._ids,
            output.token_ids,
            self._mask,
            self._logprobs,
            assistant_logprobs=None if self._logprobs is None else output.log_probs,
        )
        self._ids = merged.token_ids
        tokenizer, tokens = self._loop.tokenizer, output.token_ids
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        self._messages.append({"role": "assistant", "content": text})
        truncated = len(tokens) >= max_tokens and tokens[-1] != tokenizer.eos_token_id
        return Answer(text=text, start=start, end=len(self._mask), truncated=truncated)

    async def tell(self, *messages: Message, max_response: int) -> bool:
        """Append messages after the last answer, and return whether the response has room for them.

        Args:
            max_response: most tokens of the response with the messages; with more, nothing is appended.
        """
        longer = [*self._messages, *messages]
        merged, mask, logprobs = await self._loop.ct_merge_context_msg(
            self._messages, longer, self._ids, self._mask, self._logprobs, tools=self._tools
        )
        if len(mask) > max_response:
            return False
        self._messages, self._ids = longer, merged.token_ids
        self._mask, self._logprobs = mask, logprobs
        return True

    def output(self, num_turns: int, **extra: Any) -> AgentLoopOutput:
        """Return the output to train on; the reward manager gets `extra` as `tool_extra_fields`."""
        n_prompt = len(self._ids) - len(self._mask)
        return self._rollout.output(
            prompt=self._ids[:n_prompt],
            response=self._ids[n_prompt:],
            mask=self._mask,
            log_probs=self._logprobs,
            num_turns=num_turns,
            extra=extra,
        )


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
