"""metrics.jsonl, as a run's loggers write it."""

from __future__ import annotations

import json
from pathlib import Path


def read_metrics(path: Path) -> dict[int, dict[str, float]]:
    """Metrics by step. Of a step done again after a resume, the later values.

    A last line that a kill cut short is left out. Steps of one number that were logged in parts
    (training, then validation) are put together.
    """
    steps: dict[int, dict[str, float]] = {}
    if not path.exists():
        return steps
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut short by a kill
        numbers = {k: float(v) for k, v in row["data"].items() if isinstance(v, (int, float))}
        steps.setdefault(int(row["step"]), {}).update(numbers)
    return dict(sorted(steps.items()))


def series(steps: dict[int, dict[str, float]], metric: str) -> list[tuple[int, float]]:
    """One metric by step, where it was logged."""
    return [(step, data[metric]) for step, data in steps.items() if metric in data]
