"""Demonstrations from execution: of the programs that the hidden tests accept, which to show in SFT.

Rejection sampling (Yuan et al. 2023, arXiv:2308.01825): distinct solutions of a problem help, copies
of one only repeat it (`program_identity`).
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
"""Tokens in a row by which programs are compared: single ones hardly tell short programs apart."""


class Choose(StrEnum):
    """Which of a problem's accepted programs are kept."""

    shortest = "shortest"
    diverse = "diverse"
    """The shortest, then each time the one least like those chosen."""
    random = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A program that a model wrote, or a problem's own solution; to be shown, it passes its tests."""

    problem: str
    """The problem's id."""
    code: str
    origin: str
    """The evaluation and sample it is from, or "gold"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of candidates."""

    problems: int
    """That were asked of the model, or have a gold solution to show."""
    without: tuple[str, ...]
    """Ids of those that show nothing."""
    candidates: int
    duplicates: int
    """Left out as a copy of another candidate of the same problem."""
    over_limit: int
    """Left out since enough of their problem were kept."""
    kept: int
    kept_gold: int
    by_problem: Mapping[int, int]
    """How many problems show so many programs."""


def choose(
    candidates: Iterable[Candidate], asked: Sequence[Problem], *, n: int, how: Choose, seed: int
) -> tuple[list[Candidate], Counts]:
    """At most n distinct candidates of each problem, in the problems' order.

    Args:
        asked: the problems that were tried.
        seed: of random choices and of ties; each problem draws on its own.
    """
    groups: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[candidate.problem].append(candidate)
    chosen: dict[str, list[Candidate]] = {}
    n_distinct = 0
    for problem in asked:
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
    """The problems' own solutions."""
    return [
        Candidate(problem=problem.id, code=code, origin=GOLD)
        for problem in problems
        for code in problem.gold
    ]


def _distinct(
    candidates: Sequence[Candidate], language: str, how: Choose, seed: int
) -> list[Candidate]:
    """One of each program; the shortest first unless chance decides."""
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
    """Farthest-first traversal (Gonzalez 1985) from the first, by Jaccard distance of token n-grams."""
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
