"""A conversation with verl's rollout as tokens, to train on episodes of several answers.

    prompt | answer | observation      | answer | …
    mask     1 1 1    0 0 0 0 0 0 0 0    1 1 1

No text is tokenized twice: the model trains on exactly the tokens of its last request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopOutput,
)

from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import Message
from coding_model_project.verl_ext.loops.rollout import Rollout, Sampling


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

    @property
    def n_response(self) -> int:
        """Number of tokens since the prompt, of answers and observations."""
        return len(self._mask)

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
