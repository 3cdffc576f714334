"""Deterministic choice of samples for a page when not all fit.

A share of the budget goes to complete problems, starting with those judged at most steps, to follow
them over training. The rest is distributed round-robin over the strata (run, split, step, verdict), so
that rare verdicts are shown, although over-represented.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any
from zlib import crc32

import numpy as np
import orjson

from coding_model_project.reports.chart_lines import ACCEPTED, RunTally, error_group
from coding_model_project.reports.charts import Samples
from coding_model_project.runs.rollouts import Rollout

WHOLE_SHARE = 0.4
"""Maximum share of the budget for complete problems."""

MAX_TEXT = 20_000
"""Maximum characters of a text; the page shows how many are cut."""

ROW_BYTES = 100
"""Bytes of a sample besides its texts."""


@dataclass(slots=True)
class _Problem:
    """The samples of one problem in all runs."""

    split: str
    prompt_bytes: int
    rows: array[int] = field(default_factory=lambda: array("I"))
    steps: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of (run, step)."""


@dataclass(slots=True)
class Index:
    """A few numbers per sample, on which the choice is based."""

    sizes: array[int] = field(default_factory=lambda: array("I"))
    """Bytes of the sample's texts without the prompt, plus `ROW_BYTES`."""
    keys: array[int] = field(default_factory=lambda: array("I"))
    """Hash of the sample's name, for an order independent of its content."""
    strata: array[int] = field(default_factory=lambda: array("I"))
    numbers: array[int] = field(default_factory=lambda: array("I"))
    """Number of the sample's problem."""
    problems: dict[str, _Problem] = field(default_factory=dict)
    _problem_numbers: dict[str, int] = field(default_factory=dict)
    _strata_numbers: dict[tuple[int, str, int, str], int] = field(default_factory=dict)

    def add(self, run: int, row: Rollout) -> None:
        problem = self.problems.get(row.problem)
        if problem is None:
            problem = _Problem(row.split, text_bytes(row.prompt))
            self.problems[row.problem] = problem
        problem.rows.append(len(self.sizes))
        problem.steps.add((run, row.step))
        stratum = run, row.split, row.step, error_group(row.verdict.get("error"))
        texts = [row.completion, row.failing_test, row.sample, extra_json(row.extra)]
        self.sizes.append(ROW_BYTES + sum(text_bytes(text) for text in texts))
        self.keys.append(crc32(f"{row.problem}\0{row.step}\0{row.sample}".encode()))
        self.strata.append(self._strata_numbers.setdefault(stratum, len(self._strata_numbers)))
        self.numbers.append(_number(self._problem_numbers, row.problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The samples to show."""

    shown: bytearray
    """1 or 0 per sample, in the order of addition."""
    whole: frozenset[str]
    """Problems with all their samples shown."""


def text_bytes(text: str) -> int:
    """Return the UTF-8 bytes of a text as cut for the page."""
    kept = text[:MAX_TEXT]
    return len(kept) if kept.isascii() else len(kept.encode())


def brief_json(values: Mapping[str, Any]) -> str:
    """Encode values as JSON; empty without values."""
    return orjson.dumps(values, default=str).decode() if values else ""


def extra_json(extra: Mapping[str, Any]) -> str:
    """Encode a sample's episode as JSON, clipped so that it stays valid on the page.

    The texts of its turns share `MAX_TEXT`; rollouts.jsonl has them in full.
    """
    replies = extra.get("replies")
    if not replies:
        return brief_json(extra)
    max_chars = MAX_TEXT // (4 * len(replies))  # two texts each, and room for numbers and escapes
    turns = [{key: _clipped(value, max_chars) for key, value in one.items()} for one in replies]
    return brief_json({**extra, "replies": turns})


def _clipped(value: Any, max_chars: int) -> Any:
    if not isinstance(value, str) or len(value) <= max_chars:
        return value
    return f"{value[:max_chars]}… ({len(value) - max_chars:,} more characters)"


def choose(index: Index, budget_bytes: int) -> Choice:
    """Choose samples whose texts total at most `budget_bytes`."""
    prompts = sum(problem.prompt_bytes for problem in index.problems.values())
    n = len(index.sizes)
    if sum(index.sizes) + prompts <= budget_bytes:
        return Choice(shown=bytearray(b"\1") * n, whole=frozenset(index.problems))
    shown = bytearray(n)
    whole, used = _take_problems(index, shown, int(budget_bytes * WHOLE_SHARE))
    _take_around(index, shown, whole, budget_bytes - used)
    return Choice(shown=shown, whole=frozenset(whole))


def _take_problems(index: Index, shown: bytearray, budget: int) -> tuple[set[str], int]:
    whole: set[str] = set()
    used = 0
    for name in _by_steps(index):
        problem = index.problems[name]
        size = problem.prompt_bytes + sum(index.sizes[row] for row in problem.rows)
        if used + size <= budget:
            whole.add(name)
            used += size
            for row in problem.rows:
                shown[row] = 1
    return whole, used


def _by_steps(index: Index) -> Iterator[str]:
    """Yield problems by the number of steps that judged them, most first, alternating splits."""
    by_split: dict[str, list[str]] = {}
    for name, problem in index.problems.items():
        by_split.setdefault(problem.split, []).append(name)
    for names in by_split.values():
        names.sort(key=lambda name: (-len(index.problems[name].steps), crc32(name.encode()), name))
    for turn in zip_longest(*(by_split[split] for split in sorted(by_split))):
        yield from (name for name in turn if name is not None)


def _take_around(index: Index, shown: bytearray, whole: set[str], budget: int) -> None:
    """Fill the remaining budget; stop at the first sample that does not fit."""
    names = list(index.problems)
    with_prompt = {number for number, name in enumerate(names) if name in whole}
    for row in _in_turn(index):
        if shown[row]:
            continue
        number = index.numbers[row]
        size = index.sizes[row]
        if number not in with_prompt:
            size += index.problems[names[number]].prompt_bytes
        if size > budget:
            return
        budget -= size
        shown[row] = 1
        with_prompt.add(number)


def _in_turn(index: Index) -> Iterator[int]:
    """Yield all samples round-robin: the first of every stratum, then the second, and so on."""
    keys, strata = np.asarray(index.keys), np.asarray(index.strata)
    order = np.lexsort((keys, strata))
    starts = np.flatnonzero(np.diff(strata[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    yield from np.lexsort((keys, rank)).tolist()


# ── the table of samples ──────────────────────────────────────────────────────────────────────────

_TEXTS = frozenset({"prompt", "completion", "parts", "detail", "extra"})
_LABELS = frozenset({"split", "error", "extraction", "sandbox"})


def sample_fields(row: Rollout) -> dict[str, Any]:
    """Return the fields of a sample that a page shows."""
    verdict = row.verdict
    return {
        "step": row.step,
        "split": row.split,
        "problem": row.problem,
        "sample": row.sample,
        "prompt": row.prompt,
        "completion": row.completion,
        "tokens": row.tokens,
        "reward": round(row.reward, 6),
        "parts": brief_json(row.reward_parts),
        "error": verdict.get("error") or ACCEPTED,
        "passed": verdict.get("passed"),
        "n_tests": verdict.get("n_tests"),
        "failed_test": verdict.get("failed_test"),
        "detail": row.failing_test,
        "public_passed": verdict.get("public_passed"),
        "judge_s": verdict.get("judge_s"),
        "cached": verdict.get("cached"),
        "extraction": verdict.get("extraction") or "",
        "sandbox": verdict.get("sandbox") or "",
        "extra": extra_json(row.extra),
    }


_Texts = dict[str, int]
"""Deduplicated texts, numbered in the order of first use."""


def _number(texts: _Texts, text: str) -> int:
    return texts.setdefault(text, len(texts))


@dataclass(slots=True)
class SampleTable:
    """The table of a page's samples.

    The page reads `columns[name][i]` for sample i. Columns that end in `_text` hold indices into
    `texts`; `problem` and `label` columns indices into `problems` and `labels`.
    """

    _texts: _Texts = field(default_factory=dict)
    _problems: _Texts = field(default_factory=dict)
    _labels: _Texts = field(default_factory=dict)
    _columns: dict[str, list[Any]] = field(default_factory=dict)
    n: int = 0

    def add(self, run: int, row: Rollout) -> None:
        """Add one sample of the run with this number."""
        values: dict[str, Any] = {"run": run}
        for name, value in sample_fields(row).items():
            if name in _TEXTS:
                values[f"{name}_text"] = self._text(value)
            elif name in _LABELS:
                values[f"{name}_label"] = _number(self._labels, value)
            else:
                values[name] = value
        values["problem"] = _number(self._problems, row.problem)
        for name, value in values.items():
            self._columns.setdefault(name, []).append(value)
        self.n += 1

    def finish(self, runs: Sequence[str], tallies: Sequence[RunTally], choice: Choice) -> Samples:
        """Return the table, with the runs' names and the shown problems' histories over all samples."""
        problems = self._problems
        table = {
            "runs": list(runs),
            "texts": list(self._texts),
            "labels": list(self._labels),
            "problems": list(problems),
            "whole": [n for name, n in problems.items() if name in choice.whole],
            "columns": self._columns,
            "history": [
                entry for run, tally in enumerate(tallies) for entry in self._history(run, tally)
            ],
        }
        return Samples(
            table=table,
            n_shown=self.n,
            n_total=sum(tally.n for tally in tallies),
            n_whole=len(table["whole"]),
        )

    def _history(self, run: int, tally: RunTally) -> Iterable[tuple[int, int, int, int, int, int]]:
        """Yield (run, split label, step, problem, samples, accepted) of the shown problems."""
        for split in tally.splits:
            label = self._labels.get(split)
            for step, sums in tally.steps(split).items():
                for problem, group in sums.groups.items():
                    number = self._problems.get(problem)
                    if number is not None and label is not None:
                        yield run, label, step, number, group.n, group.accepted

    def _text(self, text: str) -> int:
        cut = len(text) - MAX_TEXT
        if cut > 0:
            text = f"{text[:MAX_TEXT]}\n… {cut:,} more characters are in rollouts.jsonl"
        return _number(self._texts, text)
