"""Folders of evaluations with known outcomes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from coding_model_project.evaluation.results import RESULTS, RUN_INFO, Result, to_line

Outcomes = Mapping[str, Sequence[bool | None]]
"""Samples by problem: accepted or not; None for what could not be graded."""


def result(dataset: str, problem: str, sample: int, passed: bool | None) -> Result:
    return Result(
        dataset=dataset,
        problem=problem,
        sample=sample,
        passed=passed,
        pass_fraction=None if passed is None else float(passed),
        error="wrong_answer" if passed is False else None,
        ungradable="the sandbox is down" if passed is None else None,
        tokens=10,
        truncated=False,
        judge_s=0.5,
    )


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
    lines = [
        to_line(result(dataset, problem, number, passed))
        for dataset, problems in datasets.items()
        for problem, samples in problems.items()
        for number, passed in enumerate(samples)
    ]
    (folder / RESULTS).write_bytes(b"".join(lines))
    return folder
