"""Answers of samples with up to the protocol's number of repairs; see `episodes.repair`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from coding_model_project.episodes.repair import Attempt, Seen, attempts, look_at
from coding_model_project.errors import PromptError, SandboxError, UngradableError
from coding_model_project.evaluation.backends.generation import Backend, Completion
from coding_model_project.evaluation.plan import Sample, sample_seed
from coding_model_project.evaluation.protocols import EvalProtocol
from coding_model_project.grading.judge import AnyGrader
from coding_model_project.grading.prompts import Message, solve_messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A sample's attempts (at least one)."""

    attempts: tuple[Attempt[Completion], ...]

    @property
    def completion(self) -> Completion:
        """The last answer."""
        return self.attempts[-1].answer

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(attempt.answer.n_tokens for attempt in self.attempts)

    @property
    def reasoning_tokens(self) -> int | None:
        """Reasoning tokens of all answers; None if no answer has a count."""
        counted = [attempt.answer.n_reasoning_tokens for attempt in self.attempts]
        known = [n for n in counted if n is not None]
        return sum(known) if known else None

    def plain(self) -> list[dict[str, Any]]:
        """Return the attempts as plain values for completions.jsonl."""
        return [
            {
                "completion": attempt.answer.text,
                "tokens": attempt.answer.n_tokens,
                "public_error": attempt.public_error,
                "observation": attempt.observation,
                "judge_s": attempt.judge_s,
            }
            for attempt in self.attempts
        ]


class Episodes:
    """A generator of episodes.

    Args:
        public: grader by public tests, which protocols with repair need.
    """

    def __init__(self, backend: Backend, public: AnyGrader, protocol: EvalProtocol) -> None:
        self._backend = backend
        self._public = public
        self._protocol = protocol
        self._cost_s: dict[tuple[str, str], float] = {}

    async def generate(self, sample: Sample) -> Episode:
        """Generate a sample's episode.

        Raises:
            PromptError: the model cannot answer the prompt.
            GenerationError, SandboxError: infrastructure failed; a resumed run repeats the episode.
        """
        made = await attempts(
            _Model(self._backend, self._protocol, sample),
            lambda answer: self._look(sample, answer),
            rounds=self._protocol.repair_rounds,
        )
        return Episode(attempts=tuple(made))

    async def _look(self, sample: Sample, answer: Completion) -> Seen:
        protocol = self._protocol
        try:
            seen = await look_at(
                sample.problem,
                answer.text,
                self._public,
                style=protocol.prompt,
                max_bytes=protocol.observation_bytes,
            )
        except SandboxError:
            raise
        except UngradableError:  # the problem is broken, which judging its hidden tests reports
            return Seen()
        # A cache hit costs what the original run cost.
        key = sample.problem.id, answer.text
        self._cost_s[key] = max(seen.judge_s, self._cost_s.get(key, 0.0))
        return replace(seen, judge_s=round(self._cost_s[key], 4))


class _Model:
    """Adapter of a back end to `episodes.repair.Model`."""

    def __init__(self, backend: Backend, protocol: EvalProtocol, sample: Sample) -> None:
        self._backend, self._protocol, self._sample = backend, protocol, sample
        self._messages = solve_messages(
            sample.problem, style=protocol.prompt, system=protocol.system_prompt
        )

    async def answer(self, repairs: int) -> Completion | None:
        sample = self._sample
        key = sample.dataset, sample.problem.id, repairs
        seed = sample_seed(sample.seed, key) if repairs else sample.seed
        try:
            made = await self._backend.complete(self._messages, self._protocol.sampling, seed)
        except PromptError:  # the conversation is too long: keep the last answer
            if not repairs:
                raise
            return None
        self._messages = [*self._messages, {"role": "assistant", "content": made.text}]
        return made

    async def tell(self, message: Message) -> bool:
        self._messages = [*self._messages, message]
        return True
