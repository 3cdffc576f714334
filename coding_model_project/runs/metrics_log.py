"""Readers of metrics.jsonl, which a run's loggers write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def read_metrics(path: Path) -> dict[int, dict[str, float]]:
    """Read metrics by step; for a step repeated after a resume, the later values.

    A line truncated by a kill is skipped. Parts of a step that were logged separately (training, then
    validation) are merged.
    """
    steps: dict[int, dict[str, float]] = {}
    for row in _rows(path):
        numbers = {k: float(v) for k, v in row["data"].items() if isinstance(v, (int, float))}
        steps.setdefault(int(row["step"]), {}).update(numbers)
    return dict(sorted(steps.items()))


def total(path: Path, metric: str) -> float:
    """Sum a metric over all logged lines; a repeated step counts twice."""
    rows = _rows(path)
    return sum(float(row["data"][metric]) for row in rows if metric in row["data"])


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):  # truncated by a kill
            rows.append(json.loads(line))
    return rows


def series(steps: Mapping[int, dict[str, float]], metric: str) -> list[tuple[int, float]]:
    """Return a metric's values as (step, value) pairs."""
    return [(step, data[metric]) for step, data in steps.items() if metric in data]
