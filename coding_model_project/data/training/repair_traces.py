"""Demonstrations of repair: a model's wrong program, the observation, and a right program.

The conversation has the form of `repair`: statement, program, observation, program. From it, a model that
never saw an observation, such as one trained from scratch, learns its meaning before RL rewards its use.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from coding_model_project.concurrency import each
from coding_model_project.data.training.rows import VerlRow, sft_row
from coding_model_project.data.training.samples import Sample
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.observation import observation
from coding_model_project.grading.prompts import PromptStyle, solution_message
from coding_model_project.progress import Advance
from coding_model_project.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A wrong program, which fails a public test, and a right one."""

    wrong: Sample
    error: str
    """The type of its error on the public tests."""
    observation: Mapping[str, str]
    """The message to the model about the failure (`grading.observation`)."""
    right: str = ""
    """A program that the hidden tests accept."""


def choose_traces(
    wrong: Iterable[Trace], right: Mapping[str, Sequence[str]], *, n: int
) -> list[Trace]:
    """Choose at most n wrong programs of each problem, different errors first.

    Each is paired with the most similar right program of its problem; a repair is not a new program.

    Args:
        right: programs that pass, by problem; a problem without any has no demonstrations.
    """
    groups: dict[str, list[tuple[int, Trace]]] = defaultdict(list)
    seen: Counter[tuple[str, str]] = Counter()
    for one in wrong:
        key = one.wrong.problem.id, one.error
        groups[key[0]].append((seen[key], one))
        seen[key] += 1
    return [
        replace(one, right=_nearest(one.wrong.program, right[problem]))
        for problem, ranked in groups.items()
        if right.get(problem)
        for _, one in sorted(ranked, key=lambda pair: pair[0])[:n]
    ]


def _nearest(code: str, right: Sequence[str]) -> str:
    """Return the program with the most text in common (difflib's ratio), the shorter of several."""
    return max(right, key=lambda one: (SequenceMatcher(None, code, one).ratio(), -len(one)))


def trace_row(trace: Trace, style: PromptStyle) -> VerlRow:
    """Return a row for verl's SFT data set in the form of `rows.sft_row`, so that both can be mixed.

    Use `LastAnswerDataset`, which trains on the last answer only; verl's own data set would train on the
    wrong program too.
    """
    problem = trace.wrong.problem
    row = sft_row(problem, trace.right, style)
    *prompt, answer = row["messages"]
    wrong = solution_message(trace.wrong.program, style=style, language=problem.language)
    return row | {"messages": [*prompt, wrong, dict(trace.observation), answer]}


async def observed(
    samples: Iterable[Sample],
    style: PromptStyle,
    max_bytes: int,
    sandbox: Sandbox,
    advance: Advance,
) -> list[Trace]:
    """Return the samples that fail a public test, in order, with their observations.

    Args:
        sandbox: is started and stopped.
    """

    async def look(one: Sample) -> Trace | None:
        verdict = await grader.grade_code(one.problem, one.code)
        advance()
        seen = observation(one.problem, verdict, style=style, max_bytes=max_bytes)
        if seen is None:
            return None
        return Trace(wrong=one, error=str(verdict.error), observation=seen)

    async with sandbox:
        grader = ExecutionGrader(sandbox, stop_early=True, public=True)
        return [one for one in await each(samples, look) if one is not None]
