"""Demonstrations of repair: a model's wrong program, the observation, and a right program.

The conversation has the form of `repair`: statement, program, observation, program. From it, a model that
never saw an observation, such as one trained from scratch, learns its meaning before RL rewards its use.
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
    """The message to the model about the failure (`grading.observation`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A demonstration."""

    wrong: Wrong
    right: str
    """A program that the hidden tests accept."""


def choose_traces(
    wrong: Iterable[Wrong], right: Mapping[str, Sequence[str]], *, n: int
) -> list[Trace]:
    """Choose at most n distinct wrong programs of each problem, different errors first.

    Each is paired with the most similar right program of its problem; a repair is not a new program.

    Args:
        right: programs that pass, by problem; a problem without any has no demonstrations.
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
    """Return the program with the most text in common (difflib's ratio), the shorter of several."""
    return max(right, key=lambda one: (SequenceMatcher(None, code, one).ratio(), -len(one)))


def trace_row(problem: Problem, trace: Trace, style: PromptStyle) -> VerlRow:
    """Return a row for verl's SFT data set in the form of `rows.sft_row`, so that both can be mixed.

    Use `LastAnswerDataset`, which trains on the last answer only; verl's own data set would train on the
    wrong program too.
    """
    row = sft_row(problem, trace.right, style)
    *prompt, answer = row["messages"]
    wrong = solution_message(trace.wrong.code, style=style, language=problem.language)
    return row | {"messages": [*prompt, wrong, dict(trace.wrong.observation), answer]}
