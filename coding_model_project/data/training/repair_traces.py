"""Demonstrations of repair: a model's wrong program, the observation, and a right program.

The conversation has the form of `repair`: statement, program, observation, program. From it, a model that
never saw an observation, such as one trained from scratch, learns its meaning before RL rewards its use.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from coding_model_project.data.program_identity import normal_form
from coding_model_project.data.training.rows import VerlRow, sft_row
from coding_model_project.data.training.sft_rows import Candidate
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.observation import observation
from coding_model_project.grading.prompts import PromptStyle, solution_message
from coding_model_project.progress import Advance
from coding_model_project.sandbox.base import Sandbox
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


def distinct(candidates: Iterable[Candidate], problems: Mapping[str, Problem]) -> list[Candidate]:
    seen: dict[tuple[str, str], Candidate] = {}
    for one in candidates:
        form = normal_form(one.code, problems[one.problem].language)
        seen.setdefault((one.problem, form), one)
    return list(seen.values())


async def observed(
    candidates: Sequence[Candidate],
    problems: dict[str, Problem],
    style: PromptStyle,
    max_bytes: int,
    sandbox: Sandbox,
    advance: Advance,
) -> list[Wrong]:
    """Return the candidates that fail a public test, in order, with their observations.

    Args:
        sandbox: is started and stopped.
    """
    async with sandbox:
        grader = ExecutionGrader(sandbox, stop_early=True, public=True)
        looked = [
            _look(grader, one, problems[one.problem], style, max_bytes, advance)
            for one in candidates
        ]
        found = await asyncio.gather(*looked)
    return [one for one in found if one is not None]


async def _look(
    grader: ExecutionGrader,
    candidate: Candidate,
    problem: Problem,
    style: PromptStyle,
    max_bytes: int,
    advance: Advance,
) -> Wrong | None:
    verdict = await grader.grade_code(problem, candidate.code)
    message = observation(problem, verdict, style=style, max_bytes=max_bytes)
    advance()
    if message is None:
        return None
    error = str(verdict.error)
    return Wrong(problem=problem.id, code=candidate.code, error=error, observation=message)
