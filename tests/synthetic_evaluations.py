"""Folders of evaluations with known outcomes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_model_project.evaluation.results import RESULTS, RUN_INFO, Result, to_line

Outcome = bool | str | None
"""Accepted or not; an error's type; None for what could not be graded."""
Outcomes = Mapping[str, Sequence[Outcome]]
"""Samples by problem."""


def result(dataset: str, problem: str, sample: int, outcome: Outcome, **changes: Any) -> Result:
    error = "wrong_answer" if outcome is False else outcome if isinstance(outcome, str) else None
    passed = None if outcome is None else error is None
    fields = {
        "dataset": dataset,
        "problem": problem,
        "sample": sample,
        "passed": passed,
        "pass_fraction": None if passed is None else float(passed),
        "error": error,
        "ungradable": "the sandbox is down" if passed is None else None,
        "tokens": 10,
        "truncated": False,
        "judge_s": 0.5,
    }
    return Result(**fields | changes)


def write_results(folder: Path, results: Iterable[Result]) -> Path:
    (folder / RESULTS).write_bytes(b"".join(map(to_line, results)))
    return folder


def write_evaluation(
    folder: Path,
    outcomes: Outcomes | Mapping[str, Outcomes],
    *,
    model: str = "m",
    seed: int = 0,
    protocol: str = "greedy",
    **settings: object,
) -> Path:
    """Write a folder as the runner would. Outcomes without a data set are of "toy"."""
    nested = any(isinstance(value, Mapping) for value in outcomes.values())
    datasets: Mapping[str, Outcomes] = outcomes if nested else {"toy": outcomes}  # type: ignore[assignment]
    folder.mkdir(parents=True, exist_ok=True)
    info = {
        "model": model,
        "seed": seed,
        "protocol": {"name": protocol, "hash": f"{protocol}{sorted(settings.items())}", **settings},
        "datasets": {name: {"version": "1", "problems": len(of)} for name, of in datasets.items()},
    }
    (folder / RUN_INFO).write_text(json.dumps(info))
    results = (
        result(dataset, problem, number, outcome)
        for dataset, problems in datasets.items()
        for problem, samples in problems.items()
        for number, outcome in enumerate(samples)
    )
    return write_results(folder, results)
