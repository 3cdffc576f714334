"""What the page is given: a few plain values per run, ready to be JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart, by step. Without `low` and `high` there is no interval to draw."""

    label: str = ""
    """Tells the lines of one run and chart apart; empty where there is only one."""
    steps: Sequence[int]
    values: Sequence[float]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Parts that add up, by step: shares of samples, or seconds."""

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
    """For the hover label and the caption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """All the page says of a run besides its samples."""

    name: str
    state: str
    facts: Sequence[tuple[str, str]]
    """Label and text of the run's header."""
    n_rollouts: int
    lines: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    """By chart: accepted, accepted_by_source, validation, evaluations, measures, reward,
    reward_by_source, loss, parts, length, infra, public."""
    stacks: Mapping[str, Stack] = field(default_factory=dict)
    """By chart: errors (shares) and times (seconds)."""
    months: Mapping[str, Sequence[Score]] = field(default_factory=dict)
    """pass@1 by the month in which problems were published, by data set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The samples a page holds."""

    table: Mapping[str, Any]
    """Columns and the texts they point to, as `sample_columns.SampleTable` lays them out."""
    n_shown: int
    n_total: int
    n_whole: int
    """Problems of which every sample is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What came of `write_report`."""

    path: Path
    page_bytes: int
    n_shown: int
    n_total: int
