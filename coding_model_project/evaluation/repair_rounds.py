"""Answers to a problem and repairs of them, as often as the protocol says; see `repair`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from coding_model_project.errors import PromptError, SandboxError, UngradableError
from coding_model_project.evaluation.backends.generation import Backend, Completion, Messages
from coding_model_project.evaluation.plan import Sample, sample_seed
from coding_model_project.evaluation.protocols import EvalProtocol
from coding_model_project.grading.cache import CachedGrader
from coding_model_project.grading.observation import can_repair, observation
from coding_model_project.grading.prompts import solve_messages
from coding_model_project.types import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One answer of an episode, and what came of it."""

    completion: str
    tokens: int
    public_error: str | None = None
    """What its public tests said; None if they passed or were not asked."""
    observation: str | None = None
    """What the model was told after it; None for the last attempt."""
    judge_s: float = 0.0
    """Of its public tests: what they cost when they were run, for a verdict from the cache too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A sample's attempts, at least one."""

    attempts: tuple[Attempt, ...]
    truncated: bool
    """The last one was ended by the token limit."""

    @property
    def tokens(self) -> int:
        return sum(attempt.tokens for attempt in self.attempts)

    def plain(self) -> list[dict[str, Any]]:
        """The attempts as JSON has them."""
        return [asdict(attempt) for attempt in self.attempts]


class Episodes:
    """Has samples answered.

    Args:
        public: judges by public tests; needed by a protocol with rounds.
    """

    def __init__(self, backend: Backend, public: CachedGrader, protocol: EvalProtocol) -> None:
        self._backend = backend
        self._public = public
        self._protocol = protocol
        self._cost_s: dict[tuple[str, str | None], float] = {}

    async def generate(self, sample: Sample) -> Episode:
        """One sample's episode.

        Raises:
            PromptError: the model cannot be asked at all.
            GenerationError, SandboxError: infrastructure failed; the episode is begun anew later.
        """
        protocol = self._protocol
        messages = solve_messages(
            sample.problem, style=protocol.prompt, system=protocol.system_prompt
        )
        attempts: list[Attempt] = []
        truncated = False
        while True:
            try:
                completion = await self._complete(sample, messages, len(attempts))
            except PromptError:  # the conversation has become too long: the last answer stays
                if not attempts:
                    raise
                break
            attempt = Attempt(completion=completion.text, tokens=completion.n_tokens)
            attempts.append(attempt)
            truncated = completion.truncated
            if len(attempts) > self._protocol.repair_rounds or truncated:
                break
            attempts[-1], told = await self._looked(sample, attempt)
            if told is None:
                break
            answer = {"role": "assistant", "content": completion.text}
            messages = [*messages, answer, told]
        return Episode(attempts=tuple(_last_untold(attempts)), truncated=truncated)

    async def _complete(self, sample: Sample, messages: Messages, repairs: int) -> Completion:
        key = sample.dataset, sample.problem.id, repairs
        seed = sample_seed(sample.seed, key) if repairs else sample.seed
        return await self._backend.complete(messages, self._protocol.sampling, seed)

    async def _looked(
        self, sample: Sample, attempt: Attempt
    ) -> tuple[Attempt, dict[str, str] | None]:
        """The attempt with what its public tests say, and the message of it if it fails them."""
        problem = sample.problem
        if not can_repair(problem):
            return attempt, None
        try:
            verdict = await self._public.grade(problem, attempt.completion)
        except SandboxError:
            raise
        except UngradableError:  # the problem's own fault: the verdict on its hidden tests says so
            return attempt, None
        style, max_bytes = self._protocol.prompt, self._protocol.observation_bytes
        told = observation(problem, verdict, style=style, max_bytes=max_bytes)
        looked = replace(
            attempt,
            public_error=verdict.error and str(verdict.error),
            observation=told and told["content"],
            judge_s=round(self._cost(verdict), 4),
        )
        return looked, told

    def _cost(self, verdict: Verdict) -> float:
        key = verdict.problem_id, verdict.code
        self._cost_s[key] = max(verdict.judge_s, self._cost_s.get(key, 0.0))
        return self._cost_s[key]


def _last_untold(attempts: list[Attempt]) -> list[Attempt]:
    """What no answer followed was not told."""
    return [*attempts[:-1], replace(attempts[-1], observation=None)]
