"""Chosen rollouts as columns of numbers and deduplicated texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from coding_model_project.reports.page_data import Samples
from coding_model_project.reports.sample_selection import MAX_TEXT, Choice, brief_json, extra_json
from coding_model_project.reports.tally import ACCEPTED, RunTally
from coding_model_project.runs.rollouts import Rollout

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


@dataclass(slots=True)
class _Texts:
    """Deduplicated texts, numbered in the order of first use."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


@dataclass(slots=True)
class SampleTable:
    """The table of a page's samples.

    The page reads `columns[name][i]` for sample i. Columns that end in `_text` hold indices into
    `texts`; `problem` and `label` columns indices into `problems` and `labels`.
    """

    _texts: _Texts = field(default_factory=_Texts)
    _problems: _Texts = field(default_factory=_Texts)
    _labels: _Texts = field(default_factory=_Texts)
    _columns: dict[str, list[Any]] = field(default_factory=dict)
    n: int = 0

    def add(self, run: int, row: Rollout) -> None:
        """Add one sample of the run with this number."""
        values: dict[str, Any] = {"run": run}
        for name, value in sample_fields(row).items():
            if name in _TEXTS:
                values[f"{name}_text"] = self._text(value)
            elif name in _LABELS:
                values[f"{name}_label"] = self._labels.number(value)
            else:
                values[name] = value
        values["problem"] = self._problems.number(row.problem)
        for name, value in values.items():
            self._columns.setdefault(name, []).append(value)
        self.n += 1

    def finish(self, runs: Sequence[str], tallies: Sequence[RunTally], choice: Choice) -> Samples:
        """Return the table, with the runs' names and the shown problems' histories over all samples."""
        problems = self._problems.numbers
        table = {
            "runs": list(runs),
            "texts": list(self._texts.numbers),
            "labels": list(self._labels.numbers),
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
            label = self._labels.numbers.get(split)
            for step, sums in tally.steps(split).items():
                for problem, group in sums.groups.items():
                    number = self._problems.numbers.get(problem)
                    if number is not None and label is not None:
                        yield run, label, step, number, group.n, group.accepted

    def _text(self, text: str) -> int:
        cut = len(text) - MAX_TEXT
        if cut > 0:
            text = f"{text[:MAX_TEXT]}\n… {cut:,} more characters are in rollouts.jsonl"
        return self._texts.number(text)
