"""Selection of SFT demonstrations among programs that the hidden tests accept.

This is rejection sampling (Yuan et al. 2023, arXiv:2308.01825): distinct solutions of a problem help, so
equivalent programs are deduplicated (`program_identity`).
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coding_model_project.data.program_identity import normal_form
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
class Candidate:
    """A program that passes its tests, written by a model or a problem's own solution."""

    problem: str
    """The problem's id."""
    code: str
    origin: str
    """The evaluation and sample that it comes from, or "gold"."""


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
    candidates: Iterable[Candidate], problems: Sequence[Problem], *, n: int, how: Choose, seed: int
) -> tuple[list[Candidate], Counts]:
    """Choose at most n distinct candidates of each problem, in the problems' order.

    Args:
        problems: the problems that were tried.
        seed: the seed of random choices and ties; each problem draws independently.
    """
    groups: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[candidate.problem].append(candidate)
    chosen: dict[str, list[Candidate]] = {}
    n_distinct = 0
    for problem in problems:
        distinct = _distinct(groups.get(problem.id, []), problem.language, how, seed)
        n_distinct += len(distinct)
        chosen[problem.id] = _diverse(distinct, n) if how is Choose.diverse else distinct[:n]
    kept = [candidate for several in chosen.values() for candidate in several]
    n_candidates = sum(map(len, groups.values()))
    by_problem = Counter(len(several) for several in chosen.values())
    return kept, Counts(
        problems=len(chosen),
        without=tuple(name for name, several in chosen.items() if not several),
        candidates=n_candidates,
        duplicates=n_candidates - n_distinct,
        over_limit=n_distinct - len(kept),
        kept=len(kept),
        kept_gold=sum(candidate.origin == GOLD for candidate in kept),
        by_problem=dict(sorted(by_problem.items())),
    )


GOLD = "gold"


def gold_candidates(problems: Iterable[Problem]) -> list[Candidate]:
    """Return the problems' own solutions as candidates."""
    return [
        Candidate(problem=problem.id, code=code, origin=GOLD)
        for problem in problems
        for code in problem.gold
    ]


def _distinct(
    candidates: Sequence[Candidate], language: str, how: Choose, seed: int
) -> list[Candidate]:
    """Deduplicate candidates; the shortest come first, except for `Choose.random`."""
    if not candidates:
        return []
    rng = random.Random(f"{seed} {candidates[0].problem}")
    ordered = rng.sample(candidates, len(candidates))
    if how is not Choose.random:
        ordered.sort(key=lambda candidate: len(candidate.code.strip()))
    seen: dict[str, Candidate] = {}
    for candidate in ordered:
        seen.setdefault(normal_form(candidate.code, language), candidate)
    return list(seen.values())


def _diverse(candidates: Sequence[Candidate], n: int) -> list[Candidate]:
    """Choose by farthest-first traversal (Gonzalez 1985), with the Jaccard distance of token n-grams."""
    chosen: list[Candidate] = list(candidates[:1])
    left = list(candidates[1:])
    grams = {id(candidate): _grams(candidate.code) for candidate in candidates}
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
