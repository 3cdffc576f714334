"""Folders of evaluations with known outcomes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_model_project.evaluation.plan import data_version
from coding_model_project.evaluation.results import (
    COMPLETIONS,
    RESULTS,
    RUN_INFO,
    Generated,
    Result,
    program_hash,
    to_line,
)
from coding_model_project.types import Problem

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


def write_samples(
    folder: Path,
    problems: Iterable[Problem],
    samples: Iterable[tuple[str, str, Outcome, bool]],
    *,
    prompt: str = "bare",
) -> Path:
    """Write an evaluation of "mine" whose samples are (problem, completion, outcome, cut off)."""
    folder.mkdir()
    samples = list(samples)
    asked = [one for one in problems if one.id in {name for name, *_ in samples}]
    info = {
        "model": "m",
        "seed": 0,
        "protocol": {"name": "sampled", "hash": "1", "prompt": prompt},
        "datasets": {"mine": {"version": data_version(asked), "problems": len(asked)}},
    }
    (folder / RUN_INFO).write_text(json.dumps(info))
    generated, results = [], []
    for number, (name, text, outcome, cut) in enumerate(samples):
        same = {"dataset": "mine", "problem": name, "sample": number, "tokens": 7, "truncated": cut}
        generated.append(Generated(**same, seed=0, completion=text, seconds=0, at=0))
        program = {"tokens": 7, "truncated": cut, "program": program_hash(text)}
        results.append(result("mine", name, number, outcome, **program))
    (folder / COMPLETIONS).write_bytes(b"".join(map(to_line, generated)))
    return write_results(folder, results)
