"""Preference pairs from verdicts: an accepted program against a failing one of the same problem.

The functions are pure: judged samples go in, pairs and facts about them come out. The lengths and the
similarity of the two sides are controlled, because a model would learn these instead of correctness.
`bias_report` reports the remaining bias.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from statistics import fmean
from typing import Any

from coding_model_project.config_key import option
from coding_model_project.data.training.rows import VerlRow, refuse_training, source
from coding_model_project.data.training.samples import Sample, by_problem, normal_form
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle, solution_message, solve_messages
from coding_model_project.types import ErrorType, Problem

CONTRASTS = (
    ErrorType.wrong_answer,
    ErrorType.runtime_error,
    ErrorType.timeout,
    ErrorType.syntax_error,
)
"""Groups of error types that an accepted program may be paired with."""


class Similarity(StrEnum):
    """The choice of a failing program for an accepted one."""

    nearest = "nearest"
    """The most similar one, so that the difference is the error."""
    random = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Settings for making pairs."""

    contrasts: tuple[ErrorType, ...] = CONTRASTS
    per_problem: int = 4
    max_length_ratio: float = option(
        2.0, "Drop pairs with one side more than N times as long as the other."
    )
    """In characters of the completions."""
    balance_length: bool = option(
        False, "Drop pairs until each side is the longer one equally often."
    )
    similarity: Similarity = option(
        Similarity.nearest,
        "Choose the failing program nearest to the accepted one, or a random one.",
    )
    gold: bool = option(False, "Use gold solutions for problems without an accepted sample.")
    seed: int = 0

    def __post_init__(self) -> None:
        if unknown := [name for name in self.contrasts if name not in CONTRASTS]:
            raise ConfigError(
                f"--contrasts={unknown[0]}: choose from {', '.join(map(str, CONTRASTS))}"
            )
        if not self.contrasts or self.per_problem < 1 or not self.max_length_ratio >= 1:
            raise ConfigError(
                "--contrasts needs at least one name; --per-problem and --max-length-ratio must be at "
                "least 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A chosen and a rejected answer to one problem."""

    chosen: Sample
    rejected: Sample
    similarity: float
    """The programs' share of common words in order, 0 to 1 (`difflib`'s ratio)."""

    @property
    def problem(self) -> Problem:
        return self.chosen.problem

    @property
    def contrast(self) -> ErrorType:
        assert self.rejected.error is not None
        return self.rejected.error

    @property
    def log_ratio(self) -> float:
        """Log ratio of the chosen to the rejected length in characters; above 0, chosen is longer."""
        return math.log(len(self.chosen.completion) / len(self.rejected.completion))


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The pairs, and the problems and samples without one."""

    pairs: tuple[Pair, ...]
    without: Mapping[str, tuple[str, ...]]
    """Ids of problems without a pair, by reason."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Numbers of samples or pairs left out, by reason."""


def make_pairs(
    samples: Iterable[Sample], problems: Sequence[Problem], controls: Controls, style: PromptStyle
) -> Paired:
    """Make pairs for all problems, in their order. The same seed gives the same pairs.

    Args:
        problems: the problems that were tried, also those without a usable sample.
        style: the style of the prompts, in which a gold solution is written.

    Raises:
        ConfigError: the data must not train, or no pair can be made; names the reason.
    """
    for problem in problems:
        refuse_training(source(problem), problem.split, "data pairs")
    rng = random.Random(controls.seed)
    pairs: list[Pair] = []
    without: dict[str, list[str]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    groups = by_problem(samples)
    for problem in problems:
        sides = _sides(problem, groups.get(problem.id, ()), controls, style, left_out)
        made, reason = _of_sides(*sides, controls, rng)
        pairs += made
        if reason is not None:
            without[reason].append(problem.id)
    if controls.balance_length:
        n_before = len(pairs)
        pairs = balanced(pairs)
        left_out["pairs, to balance lengths"] += n_before - len(pairs)
    named = {reason: tuple(ids) for reason, ids in without.items()}
    if not pairs:
        counts = "; ".join(f"{len(ids)} × {reason}" for reason, ids in named.items())
        raise ConfigError(
            f"no pair can be made from {len(problems)} problems: {counts or 'none given'}"
        )
    return Paired(pairs=tuple(pairs), without=named, left_out=dict(+left_out))


_Programs = dict[str, tuple[Sample, list[str]]]
"""Samples with distinct programs and the words of these, by the program's normal form."""


def _sides(
    problem: Problem,
    samples: Sequence[Sample],
    controls: Controls,
    style: PromptStyle,
    left_out: Counter[str],
) -> tuple[_Programs, _Programs]:
    """Return a problem's accepted and failing programs, without duplicates."""
    accepted: _Programs = {}
    failing: _Programs = {}
    for one in samples:
        side = accepted if one.error is None else failing
        if one.error is not None and one.error not in controls.contrasts:
            left_out[f"failing samples of no chosen contrast ({one.error})"] += 1
            continue
        key = normal_form(one.program, problem.language)
        left_out["samples that repeat a program"] += key in side
        side.setdefault(key, (one, _WORD.findall(one.program)))
    if controls.gold and not accepted and failing and problem.gold:
        code = problem.gold[0]
        message = solution_message(code, style=style, language=problem.language)
        gold = Sample(problem=problem, completion=message["content"], code=code)
        accepted[normal_form(code, problem.language)] = gold, _WORD.findall(code)
    for key in accepted.keys() & failing.keys():  # flaky verdicts
        left_out["programs both accepted and failing"] += 1
        del accepted[key], failing[key]
    return accepted, failing


def _of_sides(
    accepted: _Programs, failing: _Programs, controls: Controls, rng: random.Random
) -> tuple[list[Pair], str | None]:
    """Return a problem's pairs, and the reason if there are none."""
    if not failing:
        return [], "no failing sample" if accepted else "no sample that can be used"
    if not accepted:
        return [], "no accepted sample"
    pool = [
        Pair(
            chosen=chosen,
            rejected=rejected,
            similarity=SequenceMatcher(None, words, others, autojunk=False).ratio(),
        )
        for chosen, words in accepted.values()
        for rejected, others in failing.values()
    ]
    limit = math.log(controls.max_length_ratio)
    pool = [pair for pair in pool if abs(pair.log_ratio) <= limit]
    if not pool:
        return [], f"no pair within --max-length-ratio={controls.max_length_ratio:g}"
    rng.shuffle(pool)  # orders equally similar pairs, and with Similarity.random all of them
    if controls.similarity is Similarity.nearest:
        pool.sort(key=lambda pair: -pair.similarity)
    return _spread(pool, controls.per_problem), None


def _spread(pool: list[Pair], n: int) -> list[Pair]:
    """Take n pairs from the front of a pool, preferring programs and contrasts not taken yet."""
    taken: list[Pair] = []
    used: Counter[object] = Counter()

    def wear(pair: Pair) -> int:
        return used[id(pair.chosen)] + used[id(pair.rejected)] + used[pair.contrast]

    while pool and len(taken) < n:
        best = min(pool, key=wear)  # the first of several
        pool.remove(best)
        taken.append(best)
        used.update([id(best.chosen), id(best.rejected), best.contrast])
    return taken


def balanced(pairs: Sequence[Pair]) -> list[Pair]:
    """Drop the most uneven pairs of the more frequent direction until both directions are equal."""
    longer = [pair for pair in pairs if pair.log_ratio > 0]
    shorter = [pair for pair in pairs if pair.log_ratio < 0]
    many, few = (longer, shorter) if len(longer) > len(shorter) else (shorter, longer)
    uneven = sorted(many, key=lambda pair: -abs(pair.log_ratio))[: len(many) - len(few)]
    dropped = {id(pair) for pair in uneven}
    return [pair for pair in pairs if id(pair) not in dropped]


def split(pairs: Sequence[Pair], share: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Split pairs into those to train on and those of about `share` of the problems, held out.

    Raises:
        ConfigError: one of the two would be empty.
    """
    ids = sorted({pair.problem.id for pair in pairs})
    n = round(share * len(ids))
    if share and not 0 < n < len(ids):
        raise ConfigError(
            f"--validation={share:g} of {len(ids)} problems is {n}: set it to 0, or make more pairs"
        )
    held = set(random.Random(seed).sample(ids, n))
    return (
        [pair for pair in pairs if pair.problem.id not in held],
        [pair for pair in pairs if pair.problem.id in held],
    )


def pair_rows(pairs: Iterable[Pair], style: PromptStyle) -> list[VerlRow]:
    """Return the rows of a parquet file of pairs.

    Returns:
        data_source; prompt: the conversation; chosen and rejected: the answers' text; problem: its id;
        contrast: the rejected one's error; similarity; chosen_from: sample or gold; extra_info: the
        problem's split.
    """
    return [
        {
            "data_source": source(pair.problem),
            "prompt": solve_messages(pair.problem, style=style),
            "chosen": pair.chosen.completion,
            "rejected": pair.rejected.completion,
            "problem": pair.problem.id,
            "contrast": str(pair.contrast),
            "similarity": round(pair.similarity, 4),
            "chosen_from": "gold" if pair.chosen.is_gold else "sample",
            "extra_info": {"split": pair.problem.split},
        }
        for pair in pairs
    ]


# ── what the pairs teach besides correctness ────────────────────────────────────────────────────────


def bias_report(paired: Paired) -> dict[str, Any]:
    """Return figures for all pairs and for each contrast, and the problems and samples without a pair.

    Returns:
        all, and contrasts by name, each see `_figures`; problems: the number with a pair;
        problems_without: by reason, {"count", "ids"}; left_out: counts by reason.
    """
    names = Counter(str(pair.contrast) for pair in paired.pairs)
    return {
        "problems": len({pair.problem.id for pair in paired.pairs}),
        "all": _figures(paired.pairs),
        "contrasts": {
            name: _figures([pair for pair in paired.pairs if str(pair.contrast) == name])
            for name, _ in names.most_common()
        },
        "problems_without": {
            reason: {"count": len(ids), "ids": list(ids)} for reason, ids in paired.without.items()
        },
        "left_out": dict(paired.left_out),
    }


def _figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return figures about pairs.

    Returns:
        pairs: their number; gold: the number whose chosen side is a gold solution; similarity: the mean;
        chosen_longer, rejected_longer: shares by characters; characters and tokens: means of either
        side, tokens over the pairs with both sides sampled, null if there are none.
    """
    sampled = [p for p in pairs if p.chosen.tokens is not None and p.rejected.tokens is not None]
    return {
        "pairs": len(pairs),
        "gold": sum(pair.chosen.is_gold for pair in pairs),
        "similarity": fmean(pair.similarity for pair in pairs),
        "chosen_longer": fmean(pair.log_ratio > 0 for pair in pairs),
        "rejected_longer": fmean(pair.log_ratio < 0 for pair in pairs),
        "characters": {
            "chosen": fmean(len(pair.chosen.completion) for pair in pairs),
            "rejected": fmean(len(pair.rejected.completion) for pair in pairs),
        },
        "tokens": {
            "chosen": fmean(pair.chosen.tokens or 0 for pair in sampled),
            "rejected": fmean(pair.rejected.tokens or 0 for pair in sampled),
        }
        if sampled
        else None,
    }


_WORD = re.compile(r"\w+|[^\w\s]|\n *")
"""Pattern of words, signs, and the indentation of lines."""
