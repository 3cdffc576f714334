"""Additions to an outcome's reward for short programs, well-formed answers and short responses.

They are pure functions, all off by default. Each addition is a separate part of the reward, so that
the parts sum to the total and logs show each one.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from coding_model_project.errors import ConfigError
from coding_model_project.grading.extract import Rule, is_one_block
from coding_model_project.grading.kinds import KINDS
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.rewards import (
    LengthBonus,
    RewardConfig,
    RewardKind,
    ShapingConfig,
    reward_function,
)
from coding_model_project.types import Problem, Reward, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A completion and its length, which shaping needs in addition to the verdict."""

    completion: str
    tokens: int
    """Its length in tokens, at most `Shaping.max_tokens`."""


@dataclass(frozen=True, slots=True)
class Shaping:
    """`coding.reward.shaping`, with the other settings that shaping depends on."""

    config: ShapingConfig
    _: KW_ONLY
    style: PromptStyle
    max_tokens: int
    """Maximum length of a response."""

    @property
    def on(self) -> bool:
        """True if any addition is on."""
        given = self.config
        return bool(given.length_weight or given.format_weight or given.overlong_buffer)

    @classmethod
    def of(cls, reward: RewardConfig, *, style: PromptStyle, max_tokens: int) -> Shaping:
        """Create it from a configuration.

        Raises:
            ConfigError: a key is invalid; names the key.
        """
        reward_function(reward.kind)
        given, where = reward.shaping, "coding.reward.shaping"
        if given.length_cap < 1:
            raise ConfigError(f"{where}.length_cap={given.length_cap}: must be at least 1")
        for name, value in vars(given).items():
            if isinstance(value, int | float) and value < 0:
                raise ConfigError(f"{where}.{name}={value}: must be at least 0 (0 disables it)")
        if given.overlong_buffer > max_tokens:
            raise ConfigError(
                f"{where}.overlong_buffer={given.overlong_buffer}: must be at most "
                f"data.max_response_length={max_tokens}"
            )
        partial = given.length_weight and given.length_bonus is LengthBonus.partial
        if partial and reward.kind != RewardKind.dense:
            raise ConfigError(
                f"{where}.length_bonus=partial scales the share of tests passed: set "
                "coding.reward.kind=dense"
            )
        return cls(given, style=style, max_tokens=max_tokens)


def shaped(
    outcome: Reward, problem: Problem, verdict: Verdict, answer: Answer, by: Shaping
) -> Reward:
    """Return a reward with the parts that shaping adds."""
    config, parts = by.config, dict(outcome.parts)
    if config.length_weight:
        parts["length"] = outcome.total * _length(problem, verdict, config)
    if config.format_weight:
        formed = well_formed(problem, verdict, answer, by.style)
        parts["format"] = config.format_weight * formed
    if config.overlong_buffer:
        penalty = overlong(answer.tokens, max_tokens=by.max_tokens, buffer=config.overlong_buffer)
        parts["overlong"] = config.overlong_weight * penalty
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
    if not problem.asks_for_code:
        return verdict.extraction == KINDS[problem.graded_by].form
    if style is PromptStyle.bare:
        return verdict.extraction == Rule.bare_text
    return is_one_block(answer.completion, language=problem.language)


def _length(problem: Problem, verdict: Verdict, config: ShapingConfig) -> float:
    """Return the bonus, as a share of the reward, for a program's length relative to the shortest gold
    solution; 0 without one, or if none is due."""
    due = verdict.passed or config.length_bonus is LengthBonus.partial
    if not due or verdict.code is None or not problem.gold or not problem.asks_for_code:
        return 0.0
    factor = length_factor(
        min(map(_n_bytes, problem.gold)),
        _n_bytes(verdict.code),
        weight=config.length_weight,
        cap=config.length_cap,
    )
    return factor - 1.0


def _n_bytes(code: str) -> int:
    """Return a program's size without surrounding whitespace, which depends on its extraction."""
    return len(code.strip().encode("utf-8", "replace"))
