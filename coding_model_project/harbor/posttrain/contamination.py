"""A judge that searches the agent's files for test problems, by the measures of `data.dedup`.

A text contains a test problem if it has one of:

statement  runs of `RUN_WORDS` words of its statement that no allowed text has: a share of
           `MIN_RUN_SHARE` and at least `MIN_RUNS`, in one passage of at most `WINDOW` times the
           statement's length
cases      at least `MIN_SHARED_CASES` of its test cases, and half of them, in one record
solution   a program with its reference solution's structure. A model's own samples match some by chance,
           so these count only if `MIN_SOLUTIONS` of the test problems match

Allowed texts are the problems that the task gave to the agent. Their content is not evidence, because
problems of two splits often share sentences.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from coding_model_project.data.dedup.documents import document, hashed, prose, shape, words_of
from coding_model_project.data.dedup.search import (
    MIN_RUN_SHARE,
    MIN_RUNS,
    MIN_SHARED_CASES,
    MIN_SHARED_SHARE,
    RUN_WORDS,
    ngrams,
)
from coding_model_project.data.problem_rows import problem_of
from coding_model_project.data.problems import problem_line
from coding_model_project.harbor.posttrain.left_files import Left
from coding_model_project.harbor.posttrain.submission import Judgement, Verdict
from coding_model_project.row_readers import Malformed
from coding_model_project.types import Problem

JUDGE = "contamination"
WINDOW = 3
MIN_SOLUTIONS = 0.25
_SHOWN = 20
_WORD = re.compile(r"[^\W_]+")
_BLOCK = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_MOST_CODE = 20_000


@dataclass(frozen=True, slots=True)
class Hit:
    """A test problem found in a file."""

    problem: str
    file: str
    by: str
    share: float


@dataclass(slots=True)
class _Known:
    """An index of the test problems' runs, statements, shapes and cases."""

    runs: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The problems that each run of words belongs to."""
    n_runs: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    whole: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Whole statements with too few runs of their own."""
    shapes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    cases: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    n_cases: list[int] = field(default_factory=list)
    given: frozenset[str] = frozenset()
    """Lines of the allowed problems, which are not evidence."""


def judge(
    problems: Sequence[Problem], allowed: Sequence[Problem], left: Iterable[Left]
) -> Judgement:
    """Search the agent's files for test problems.

    Args:
        problems: the test problems, with their tests and reference solutions.
        allowed: the problems that the task gave to the agent.
    """
    known = _known(problems, allowed)
    hits: dict[tuple[int, str], Hit] = {}
    unread: list[str] = []
    n_files = n_words = 0
    for file in left:
        n_files += 1
        if file.unread is not None:
            unread.append(f"{file.path}: {file.unread}")
            continue
        n_words += len(file.text) // 6
        for owner, by, share in chain(_statements(file.text, known), _records(file.text, known)):
            hit = Hit(problems[owner].id, file.path, by, round(share, 3))
            known_by = hits.get((owner, file.path))
            if known_by is None or (known_by.by == "solution" and by != "solution"):
                hits[owner, file.path] = hit
    solved = {owner for (owner, _), hit in hits.items() if hit.by == "solution"}
    counts = len(solved) >= max(3, MIN_SOLUTIONS * len(problems))
    found = [hit for hit in hits.values() if hit.by != "solution" or counts]
    found.sort(key=lambda hit: (hit.file, hit.problem))
    affected = {hit.problem for hit in found}
    reasons = []
    if affected:
        reasons.append(
            f"{len(affected)} of {len(problems)} test problems are in what was left, such as "
            f"{found[0].problem} in {found[0].file} (by its {found[0].by})"
        )
    if unread:
        reasons.append(f"{len(unread)} files cannot be read, such as {unread[0]}")
    return Judgement(
        judge=JUDGE,
        verdict=Verdict.rejected if reasons else Verdict.accepted,
        reasons=tuple(reasons),
        details={
            "files": n_files,
            "words": n_words,
            "problems_found": len(affected),
            "found": [asdict(hit) for hit in found[:_SHOWN]],
            "solutions_found": len(solved),
            "unread": unread[:_SHOWN],
        },
    )


def _known(problems: Sequence[Problem], allowed: Sequence[Problem]) -> _Known:
    documents = [document(problem) for problem in problems]
    given = [document(problem) for problem in allowed]
    free = set[int]()
    for one in given:
        free.update(ngrams(one.words, RUN_WORDS).tolist())
    free_whole = "\n".join(f" {_whole(problem)} " for problem in allowed)
    free_shapes = {shape(code) for one in allowed for code in (*one.gold, *one.bad)}
    free_cases = {case for one in given for case in one.cases.tolist()}
    known = _Known(given=frozenset(problem_line(one).decode().strip() for one in allowed))
    for owner, (one, problem) in enumerate(zip(documents, problems, strict=True)):
        runs = {run for run in ngrams(one.words, RUN_WORDS).tolist() if run not in free}
        known.n_runs.append(len(runs))
        known.lengths.append(len(one.words))
        if len(runs) >= MIN_RUNS:
            for run in runs:
                known.runs[run].append(owner)
        elif f" {(whole := _whole(problem))} " not in free_whole:
            known.whole[whole].append(owner)
        if one.shape is not None and one.shape not in free_shapes:
            known.shapes[one.shape].append(owner)
        cases = [case for case in one.cases.tolist() if case not in free_cases]
        known.n_cases.append(len(cases))
        for case in cases:
            known.cases[case].append(owner)
    return known


def _whole(problem: Problem) -> str:
    return " ".join(words_of(prose(problem.statement)))


def _statements(text: str, known: _Known) -> Iterator[tuple[int, str, float]]:
    """Find statements by runs of words that are close together."""
    words = _WORD.findall(text.replace("\\n", "\n").lower())
    positions: dict[int, list[tuple[int, int]]] = defaultdict(list)
    hashes = ngrams(hashed(words), RUN_WORDS)
    if len(hashes) and known.runs:
        wanted = np.fromiter(known.runs, dtype=np.uint64, count=len(known.runs))
        for position in np.flatnonzero(np.isin(hashes, wanted)).tolist():
            run = int(hashes[position])
            for owner in known.runs[run]:
                positions[owner].append((position, run))
    for owner, hits in positions.items():
        share = _densest(hits, WINDOW * known.lengths[owner]) / known.n_runs[owner]
        if share >= MIN_RUN_SHARE and share * known.n_runs[owner] >= MIN_RUNS:
            yield owner, "statement", share
    if known.whole:
        joined = f" {' '.join(words)} "
        for whole, owners in known.whole.items():
            if whole and f" {whole} " in joined:
                yield from ((owner, "statement", 1.0) for owner in owners)


def _densest(hits: Sequence[tuple[int, int]], window: int) -> int:
    """Return the most different runs that begin within `window` words."""
    counts: dict[int, int] = defaultdict(int)
    best = start = 0
    for position, run in hits:
        counts[run] += 1
        while position - hits[start][0] > window:
            gone = hits[start][1]
            counts[gone] -= 1
            if not counts[gone]:
                del counts[gone]
            start += 1
        best = max(best, len(counts))
    return best


def _records(text: str, known: _Known) -> Iterator[tuple[int, str, float]]:
    """Find solutions and test cases in the strings of JSON lines and in code blocks."""
    for line in text.split("\n"):
        if not line.startswith("{") or line.strip() in known.given:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield from _cases(row, known)
            for value in _strings(row):
                yield from _code(value, known)
    yield from _code(text, known)


def _code(text: str, known: _Known) -> Iterator[tuple[int, str, float]]:
    """Find solutions in the text as a program, and in its fenced blocks."""
    for code in (text, *_BLOCK.findall(text)):
        if len(code) <= _MOST_CODE and ("def " in code or "print" in code):
            for owner in known.shapes.get(shape(code) or "", ()):
                yield owner, "solution", 1.0


def _cases(row: Mapping[str, Any], known: _Known) -> Iterator[tuple[int, str, float]]:
    """Find test cases in a problem of our schema."""
    try:
        cases = document(problem_of({**row, "id": "left/1", "split": "train"})).cases.tolist()
    except (Malformed, ValueError, TypeError, KeyError):  # another schema
        return
    shared: dict[int, int] = defaultdict(int)
    for case in cases:
        for owner in known.cases.get(case, ()):
            shared[owner] += 1
    for owner, count in shared.items():
        share = count / known.n_cases[owner]
        if count >= MIN_SHARED_CASES and share >= MIN_SHARED_SHARE:
            yield owner, "cases", share


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
