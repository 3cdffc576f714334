"""Additions to an outcome's reward for short programs, well-formed answers and short responses.

They are pure functions, all off by default. Each addition is a separate part of the reward (`length`,
`format`, `overlong`), so that the parts sum to the total and logs show each one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from coding_model_project.errors import ConfigError
from coding_model_project.grading.extract import Rule, is_one_block
from coding_model_project.grading.maths.final_answer import AnswerRule
from coding_model_project.grading.predictions.answer import PredictionRule
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.reward_config import LengthBonus, RewardConfig
from coding_model_project.grading.rewards import RewardKind
from coding_model_project.types import GradedBy, Problem, Reward, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A completion and its length, which shaping needs in addition to the verdict."""

    completion: str
    tokens: int
    """Its length in tokens, at most `Shaping.max_tokens`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """`coding.reward.shaping`, with the other settings that shaping depends on."""

    style: PromptStyle
    max_tokens: int
    """Maximum length of a response."""
    length_weight: float = 0.0
    length_cap: float = 2.0
    length_bonus: LengthBonus = LengthBonus.accepted
    format_weight: float = 0.0
    overlong_buffer: int = 0
    overlong_weight: float = 1.0

    @property
    def on(self) -> bool:
        """True if any addition is on."""
        return bool(self.length_weight or self.format_weight or self.overlong_buffer)

    @classmethod
    def of(cls, reward: RewardConfig, *, style: PromptStyle, max_tokens: int) -> Shaping:
        """Create it from a configuration.

        Raises:
            ConfigError: a key is invalid; names the key.
        """
        given, where = reward.shaping, "coding.reward.shaping"
        for name in ("length_weight", "format_weight", "overlong_buffer", "overlong_weight"):
            if getattr(given, name) < 0:
                raise ConfigError(
                    f"{where}.{name}={getattr(given, name)}: must be at least 0 (0 disables it)"
                )
        if given.length_cap < 1:
            raise ConfigError(f"{where}.length_cap={given.length_cap}: must be at least 1")
        if given.overlong_buffer > max_tokens:
            raise ConfigError(
                f"{where}.overlong_buffer={given.overlong_buffer}: must be at most "
                f"data.max_response_length={max_tokens}"
            )
        partial = given.length_weight and given.length_bonus is LengthBonus.partial
        if partial and reward.kind is not RewardKind.dense:
            raise ConfigError(
                f"{where}.length_bonus=partial scales the share of tests passed: set "
                "coding.reward.kind=dense"
            )
        return cls(style=style, max_tokens=max_tokens, **asdict(given))


def shaped(
    outcome: Reward, problem: Problem, verdict: Verdict, answer: Answer, by: Shaping
) -> Reward:
    """Return a reward with the parts that shaping adds."""
    parts = dict(outcome.parts)
    if by.length_weight:
        parts["length"] = outcome.total * (_length_factor(problem, verdict, by) - 1.0)
    if by.format_weight:
        parts["format"] = by.format_weight * well_formed(problem, verdict, answer, by.style)
    if by.overlong_buffer:
        penalty = overlong(answer.tokens, max_tokens=by.max_tokens, buffer=by.overlong_buffer)
        parts["overlong"] = by.overlong_weight * penalty
    return Reward(total=sum(parts.values()), parts=parts)


def length_factor(reference_bytes: int, bytes_: int, *, weight: float, cap: float) -> float:
    """Return the factor of a program's reward for its length: in [1, 1 + weight·(cap − 1)].

    It is 1 + w·clip(reference/candidate − 1, 0, cap − 1): 1 for a program at least as long as the
    reference, and the maximum for one of at most reference/cap.
    """
    return 1.0 + weight * min(max(reference_bytes / max(1, bytes_) - 1.0, 0.0), cap - 1.0)


def overlong(tokens: int, *, max_tokens: int, buffer: int) -> float:
    """Return DAPO's soft overlong punishment (arXiv 2503.14476, equation 13), in [−1, 0].

    It is 0 up to max_tokens − buffer, then decreases linearly to −1 at max_tokens.
    """
    return -min(max(tokens - (max_tokens - buffer), 0) / buffer, 1.0)


def well_formed(problem: Problem, verdict: Verdict, answer: Answer, style: PromptStyle) -> bool:
    """Return whether a completion has the requested form: exactly one block, bare code, or a box."""
    if problem.graded_by is GradedBy.math:
        return verdict.extraction == AnswerRule.boxed
    if problem.graded_by is GradedBy.instructions:
        return False  # the instructions already judge its form
    if problem.graded_by is GradedBy.prediction:
        return verdict.extraction == PredictionRule.tagged
    if style is PromptStyle.bare:
        return verdict.extraction == Rule.bare_text
    return is_one_block(answer.completion, language=problem.language)


def _length_factor(problem: Problem, verdict: Verdict, by: Shaping) -> float:
    """Return the factor relative to the shortest gold solution; 1 without one, or if no bonus is due."""
    due = verdict.passed or by.length_bonus is LengthBonus.partial
    if not due or verdict.code is None or not problem.gold or not problem.asks_for_code:
        return 1.0
    return length_factor(
        min(map(_n_bytes, problem.gold)),
        _n_bytes(verdict.code),
        weight=by.length_weight,
        cap=by.length_cap,
    )


def _n_bytes(code: str) -> int:
    """Return a program's size without surrounding whitespace, which depends on its extraction."""
    return len(code.strip().encode("utf-8", "replace"))
