"""Data of a page: plain values per run that convert to JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a chart by step, with an interval if `low` and `high` are given."""

    label: str = ""
    """Label that distinguishes the lines of a run and chart; empty for a single line."""
    steps: Sequence[int]
    values: Sequence[float]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Additive parts by step: shares of samples, or seconds."""

    steps: Sequence[int]
    parts: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A value with its interval."""

    label: str
    value: float
    low: float
    high: float
    note: str = ""
    """Text for the hover label and the caption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """Data of a run, without its samples."""

    name: str
    state: str
    facts: Sequence[tuple[str, str]]
    """Labels and texts of the run's header."""
    n_rollouts: int
    lines: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    """Lines by chart: accepted, accepted_by_source, validation, evaluations, measures, reward,
    reward_by_source, loss, parts, length, infra, public."""
    stacks: Mapping[str, Stack] = field(default_factory=dict)
    """Stacks by chart: errors (shares) and times (seconds)."""
    scores: Mapping[str, Mapping[str, Sequence[Score]]] = field(default_factory=dict)
    """Bars of a finished evaluation, by chart and data set: pass_at_k, and months (pass@1 by month of
    publication)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The samples on a page."""

    table: Mapping[str, Any]
    """Columns and their texts, in the layout of `sample_columns.SampleTable`."""
    n_shown: int
    n_total: int
    n_whole: int
    """Number of problems with all their samples on the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of `write_report`."""

    path: Path
    page_bytes: int
    n_shown: int
    n_total: int
