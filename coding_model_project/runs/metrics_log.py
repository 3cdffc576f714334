"""metrics.jsonl, as a run's loggers write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def read_metrics(path: Path) -> dict[int, dict[str, float]]:
    """Metrics by step. Of a step done again after a resume, the later values.

    A line that a kill cut short is left out. Steps of one number that were logged in parts
    (training, then validation) are put together.
    """
    steps: dict[int, dict[str, float]] = {}
    for row in _rows(path):
        numbers = {k: float(v) for k, v in row["data"].items() if isinstance(v, (int, float))}
        steps.setdefault(int(row["step"]), {}).update(numbers)
    return dict(sorted(steps.items()))


def total(path: Path, metric: str) -> float:
    """A metric's sum over all that was logged: steps that were done twice cost twice."""
    rows = _rows(path)
    return sum(float(row["data"][metric]) for row in rows if metric in row["data"])


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):  # cut short by a kill
            rows.append(json.loads(line))
    return rows


def series(steps: Mapping[int, dict[str, float]], metric: str) -> list[tuple[int, float]]:
    """One metric by step, where it was logged."""
    return [(step, data[metric]) for step, data in steps.items() if metric in data]
