"""Judged samples of training problems, and demonstrations for SFT and repair made of them."""

from __future__ import annotations

import ast
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from coding_model_project.concurrency import each
from coding_model_project.data.training.rows import VerlRow, sft_row
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.grading.observation import observation
from coding_model_project.grading.prompts import PromptStyle, solution_message
from coding_model_project.progress import Advance
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import ErrorType, Problem

GOLD = "gold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A judged completion of a problem, or the problem's own solution."""

    problem: Problem
    completion: str
    code: str | None
    """Its program; None without one."""
    error: ErrorType | None = None
    """The group of its first failing test's error; None if it is accepted."""
    tokens: int | None = None
    """The length of the completion; None for a gold solution."""
    origin: str = GOLD
    """The evaluation and sample that it comes from, or "gold"."""

    @property
    def is_gold(self) -> bool:
        return self.origin == GOLD

    @property
    def program(self) -> str:
        """The program; the whole completion if it has none."""
        return self.code or self.completion


def gold_samples(problems: Iterable[Problem]) -> list[Sample]:
    """Return the problems' own solutions."""
    return [
        Sample(problem=one, completion=code, code=code) for one in problems for code in one.gold
    ]


def distinct(samples: Iterable[Sample]) -> list[Sample]:
    """Return the first of equivalent programs of a problem."""
    seen: dict[tuple[str, str], Sample] = {}
    for one in samples:
        form = normal_form(one.program, one.problem.language)
        seen.setdefault((one.problem.id, form), one)
    return list(seen.values())


def by_problem(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Group samples by the ids of their problems."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for one in samples:
        groups[one.problem.id].append(one)
    return groups


# ── equivalent programs ────────────────────────────────────────────────────────────────────────────


def normal_form(code: str, language: str = "python") -> str:
    """Return a form that is equal for programs that differ only in layout.

    In Python it also ignores comments and names of variables, but keeps names that are used elsewhere: of
    functions, classes, modules, keywords and attributes. In other languages it keeps spaces within a
    line, which may belong to a string.
    """
    if language == "python":
        try:
            return ast.unparse(_anonymous(syntax_tree(code)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return "\n".join(line.rstrip() for line in code.splitlines() if line.strip())


def _anonymous(tree: ast.Module) -> ast.Module:
    """Number variables and parameters in order, and remove docstrings."""
    nodes = list(ast.walk(tree))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    own -= {text for node in nodes for text in _texts(node)}
    numbers: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in own:
            node.id = numbers.setdefault(node.id, f"<{len(numbers)}>")
        elif isinstance(node, ast.arg) and node.arg in own:
            node.arg = numbers.setdefault(node.arg, f"<{len(numbers)}>")
        else:
            drop_docstring(node)
    return tree


def _texts(node: ast.AST) -> list[str]:
    """Return names without their own node: of definitions, imports, keywords, exceptions, globals."""
    if isinstance(node, ast.Name | ast.arg | ast.Attribute | ast.Constant):
        return []
    values = [value for _, value in ast.iter_fields(node)]
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [one for one in flat if isinstance(one, str)]


def drop_docstring(node: ast.AST) -> None:
    """Remove the docstring of a module, class or function; other nodes have none."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
        return
    if node.body and isinstance(first := node.body[0], ast.Expr):
        value = first.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            node.body[:1] = [] if node.body[1:] else [ast.Pass()]


# ── demonstrations for SFT ─────────────────────────────────────────────────────────────────────────
#
# Rejection sampling (Yuan et al. 2023, arXiv:2308.01825): distinct solutions of a problem help, so
# equivalent programs are deduplicated.


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
    samples: Iterable[Sample], problems: Sequence[Problem], *, n: int, by_chance: bool, seed: int
) -> tuple[list[Sample], Counts]:
    """Choose at most n distinct programs of each problem, in the problems' order.

    Args:
        samples: accepted programs.
        problems: the problems that were tried.
        by_chance: choose at random; else the shortest.
        seed: the seed of random choices and ties; each problem draws independently.
    """
    groups = by_problem(samples)
    chosen: dict[str, list[Sample]] = {}
    n_distinct = 0
    for problem in problems:
        of = groups.get(problem.id, [])
        drawn = random.Random(f"{seed} {problem.id}").sample(of, len(of))
        if not by_chance:
            drawn.sort(key=lambda one: len(one.program.strip()))
        members = distinct(drawn)
        n_distinct += len(members)
        chosen[problem.id] = members[:n]
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


# ── demonstrations of repair ───────────────────────────────────────────────────────────────────────
#
# A model's wrong program, the observation, and a right program, in the form of `repair`. From these a
# model that never saw an observation, such as one trained from scratch, learns its meaning before RL
# rewards its use.


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
