"""Demonstrations of repair: a wrong program that a model wrote, what it is told, and a right one.

The conversation is that of `repair`: statement, program, observation, program. By it a model that was
never told anything, such as one trained from scratch, learns what an observation is before it is
rewarded for using one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from coding_model_project.data.training.rows import VerlRow, sft_row
from coding_model_project.grading.prompts import PromptStyle, solution_message
from coding_model_project.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A program that fails a public test."""

    problem: str
    """The problem's id."""
    code: str
    error: str
    """The type of its error on the public tests."""
    observation: Mapping[str, str]
    """The message that tells the model of it (`repair.observation`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One demonstration."""

    wrong: Wrong
    right: str
    """A program that the hidden tests accept."""


def choose_traces(
    wrong: Iterable[Wrong], right: Mapping[str, Sequence[str]], *, n: int
) -> list[Trace]:
    """At most n distinct wrong programs of each problem, different errors first.

    Each goes with that right program of its problem which it takes the least to become: to repair is not
    to write another program.

    Args:
        right: by problem, programs that pass; a problem without any shows nothing.
    """
    groups: dict[str, dict[str, Wrong]] = defaultdict(dict)
    for one in wrong:
        groups[one.problem].setdefault(one.code.strip(), one)
    return [
        Trace(wrong=one, right=_nearest(one.code, right[problem]))
        for problem, distinct in groups.items()
        if right.get(problem)
        for one in _different_errors_first(list(distinct.values()))[:n]
    ]


def _different_errors_first(wrong: Sequence[Wrong]) -> list[Wrong]:
    nth: dict[str, int] = defaultdict(int)
    ranked = []
    for one in wrong:
        ranked.append((nth[one.error], one))
        nth[one.error] += 1
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def _nearest(code: str, right: Sequence[str]) -> str:
    """By the share of text in common (difflib's ratio); of equals the shorter."""
    return max(right, key=lambda one: (SequenceMatcher(None, code, one).ratio(), -len(one)))


def trace_row(problem: Problem, trace: Trace, style: PromptStyle) -> VerlRow:
    """A row for verl's SFT data set, as `rows.sft_row` makes them, so that files of both can be mixed.

    verl's own data set would train on the wrong program, too: `LastAnswerDataset` trains on the last
    answer only.
    """
    row = sft_row(problem, trace.right, style)
    *asked, answer = row["messages"]
    wrong = solution_message(trace.wrong.code, style=style, language=problem.language)
    return row | {"messages": [*asked, wrong, dict(trace.wrong.observation), answer]}
