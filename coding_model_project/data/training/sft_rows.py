"""Selection of SFT demonstrations among programs that the hidden tests accept.

This is rejection sampling (Yuan et al. 2023, arXiv:2308.01825): distinct solutions of a problem help, so
equivalent programs are deduplicated (`samples.distinct`).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coding_model_project.data.training.samples import Sample, by_problem, distinct
from coding_model_project.types import Problem

_TOKEN = re.compile(r"\w+|[^\w\s]")
_GRAM = 3
"""Length of the token n-grams for comparing programs; single tokens hardly distinguish short programs."""


class Choose(StrEnum):
    """The choice among a problem's accepted programs."""

    shortest = "shortest"
    diverse = "diverse"
    """The shortest, then repeatedly the one least similar to those chosen."""
    random = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of kept and dropped candidates."""

    problems: int
    """Number of problems that the model tried or that have a gold solution."""
    without: tuple[str, ...]
    """Ids of problems without a demonstration."""
    candidates: int
    duplicates: int
    """Number of candidates dropped as duplicates of another one for the same problem."""
    over_limit: int
    """Number of candidates dropped since enough were kept for their problem."""
    kept: int
    kept_gold: int
    by_problem: Mapping[int, int]
    """Number of problems by their number of demonstrations."""


def choose(
    samples: Iterable[Sample], problems: Sequence[Problem], *, n: int, how: Choose, seed: int
) -> tuple[list[Sample], Counts]:
    """Choose at most n distinct programs of each problem, in the problems' order.

    Args:
        samples: accepted programs.
        problems: the problems that were tried.
        seed: the seed of random choices and ties; each problem draws independently.
    """
    groups = by_problem(samples)
    chosen: dict[str, list[Sample]] = {}
    n_distinct = 0
    for problem in problems:
        members = _ordered(groups.get(problem.id, []), how, f"{seed} {problem.id}")
        n_distinct += len(members)
        chosen[problem.id] = _diverse(members, n) if how is Choose.diverse else members[:n]
    kept = [one for several in chosen.values() for one in several]
    n_samples = sum(map(len, groups.values()))
    return kept, Counts(
        problems=len(chosen),
        without=tuple(name for name, several in chosen.items() if not several),
        candidates=n_samples,
        duplicates=n_samples - n_distinct,
        over_limit=n_distinct - len(kept),
        kept=len(kept),
        kept_gold=sum(one.is_gold for one in kept),
        by_problem=dict(sorted(Counter(map(len, chosen.values())).items())),
    )


def _ordered(samples: Sequence[Sample], how: Choose, seed: str) -> list[Sample]:
    """Return distinct samples of a problem, the shortest first, except for `Choose.random`."""
    ordered = random.Random(seed).sample(samples, len(samples))
    if how is not Choose.random:
        ordered.sort(key=lambda one: len(one.program.strip()))
    return distinct(ordered)


def _diverse(samples: Sequence[Sample], n: int) -> list[Sample]:
    """Choose by farthest-first traversal (Gonzalez 1985), with the Jaccard distance of token n-grams."""
    chosen, left = list(samples[:1]), list(samples[1:])
    grams = {id(one): _grams(one.program) for one in samples}
    while left and len(chosen) < n:
        farthest = max(
            left, key=lambda one: min(_distance(grams[id(one)], grams[id(c)]) for c in chosen)
        )
        chosen.append(farthest)
        left.remove(farthest)
    return chosen


def _grams(code: str) -> set[tuple[str, ...]]:
    tokens = _TOKEN.findall(code)
    return {tuple(tokens[i : i + _GRAM]) for i in range(max(1, len(tokens) - _GRAM + 1))}


def _distance(first: set[tuple[str, ...]], second: set[tuple[str, ...]]) -> float:
    return 1.0 - len(first & second) / len(first | second)
