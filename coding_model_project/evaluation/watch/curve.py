"""Scores of training runs' checkpoints by step.

curve.jsonl                 a `Point` per line, in the order of evaluation
RUN/evaluations.jsonl       the same for `report`, in the format of metrics.jsonl, in each run's folder
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson
from rich.console import Group, RenderableType
from rich.text import Text

from coding_model_project import strict_json
from coding_model_project.atomic import write_text
from coding_model_project.errors import DataError
from coding_model_project.evaluation.results import Evaluation
from coding_model_project.evaluation.scores import dataset_metrics
from coding_model_project.evaluation.tables import plain_table
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.overview import sparkline

CURVE = "curve.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """pass@1 on a data set, or a metric of another tool in its own unit."""

    value: float
    low: float | None = None
    high: float | None = None
    """95% interval: over problems, or from the tool's standard error; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One checkpoint's measures."""

    key: str
    run: str
    step: int
    checkpoint: str
    evaluation: str
    """The evaluation's folder."""
    protocol: str
    """Name of the protocol, or of the other tool (`Tool`)."""
    protocol_hash: str
    """Empty for another tool."""
    seconds: float
    """Wall-clock seconds of the evaluation, including its start-up."""
    measures: Mapping[str, Measure]
    """By data set, or by another tool's task and metric."""

    @property
    def is_ours(self) -> bool:
        """Whether the measures are pass@1."""
        return bool(self.protocol_hash)

    def shown(self, name: str) -> str:
        """Format a measure with its interval; empty without one of this name."""
        if name not in self.measures:
            return ""
        one, form = self.measures[name], ".1%" if self.is_ours else ".4g"
        ends = "" if one.low is None else f" ({one.low:{form}} to {one.high:{form}})"
        return f"{one.value:{form}}{ends}"


def scores(evaluation: Evaluation) -> dict[str, Measure]:
    """Return pass@1 by data set, over problems with a graded sample; omits data sets without any."""
    found = {}
    for name in evaluation.datasets():
        of = dataset_metrics([one for one in evaluation.results if one.dataset == name], (1,))
        if rate := of["pass@k"].get("1"):
            found[name] = Measure(value=rate["value"], low=rate["low"], high=rate["high"])
    return found


class Curve:
    """The points so far, in a file that is rewritten atomically, so that none is lost or duplicated."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            DataError: the file is damaged.
        """
        self._path = folder / CURVE
        self._points = {point.key: point for point in _read(self._path)}

    def __contains__(self, key: str) -> bool:
        return key in self._points

    @property
    def points(self) -> list[Point]:
        """Points ordered by run and step."""
        return sorted(self._points.values(), key=lambda point: (point.run, point.step))

    def add(self, point: Point) -> None:
        """Store a point, and add it to its run's report."""
        run = RunFolder(Path(point.run))
        if run.run_json.exists():
            _add_to_run(run, point)
        self._points[point.key] = point  # last: a point in the curve is not evaluated again
        lines = [orjson.dumps(asdict(one)).decode() + "\n" for one in self._points.values()]
        write_text(self._path, "".join(lines))


def _read(path: Path) -> list[Point]:
    from pydantic import TypeAdapter, ValidationError

    row, points = TypeAdapter(Point), []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else [], 1):
        try:
            points.append(row.validate_json(line))
        except ValidationError as error:
            raise DataError(f"{path}, line {number}: not a point of a curve") from error
    return points


def _add_to_run(run: RunFolder, point: Point) -> None:
    data = {}
    for name, one in point.measures.items():
        value = "pass_at_1" if point.is_ours else "value"
        parts = {value: one.value, "low": one.low, "high": one.high}
        known = {part: number for part, number in parts.items() if number is not None}
        data |= {f"{name} ({point.protocol})/{part}": number for part, number in known.items()}
    with run.evaluations.open("ab") as file:
        file.write(orjson.dumps({"step": point.step, "data": data}) + b"\n")


def view(curve: Curve) -> RenderableType:
    """Render each run's curve: a sparkline per data set or metric, and a row per step."""
    parts: list[RenderableType] = []
    by_run: dict[str, list[Point]] = {}
    for point in curve.points:
        by_run.setdefault(point.run, []).append(point)
    for run, points in by_run.items():
        names = list(dict.fromkeys(name for point in points for name in point.measures))
        parts.append(Text(run, style="bold"))
        for name in names:
            found = [point.measures[name].value for point in points if name in point.measures]
            form = ".1%" if points[0].is_ours else ".4g"
            ends = f"{found[0]:{form}} → {found[-1]:{form}}"
            parts.append(Text(f"{name}  {sparkline(found)}  {ends}"))
        rows = [(f"{point.step}", *map(point.shown, names)) for point in points]
        parts.append(plain_table(("step", *names), rows, left=0))
    return Group(*parts)


# ── results of other tools ────────────────────────────────────────────────────────────────────────

_STDERR = "_stderr"
_HALF_WIDTH = 1.96
"""Half width of a 95% interval in standard errors."""


class Tool(StrEnum):
    """A tool whose results can be read."""

    lm_eval = "lm-eval"
    olmes = "olmes"
    other = "command"


def read_measures(folder: Path) -> tuple[Tool, dict[str, Measure]]:
    """Read the results of another tool.

    Raises:
        DataError: there are no results, or in no known format.
    """
    tool, file = _find(folder)
    try:
        content = strict_json.loads(file.read_bytes())
        numbers = _READERS[tool](content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: not results of {tool} ({error!r})") from error
    measures = {}
    for name, value in numbers.items():
        if not name.endswith(_STDERR):
            error = numbers.get(f"{name}{_STDERR}", math.nan) * _HALF_WIDTH
            ends = {} if math.isnan(error) else {"low": value - error, "high": value + error}
            measures[name] = Measure(value=value, **ends)
    if not measures:
        raise DataError(f"{file}: no numbers")
    return tool, measures


def _find(folder: Path) -> tuple[Tool, Path]:
    harness = sorted(folder.rglob("results_*.json"), key=lambda path: path.name)
    if harness:
        return Tool.lm_eval, harness[-1]  # earlier attempts may have left others
    if (folder / "metrics.json").exists():
        return Tool.olmes, folder / "metrics.json"
    files = sorted(folder.glob("*.json"))
    if len(files) != 1:
        raise DataError(
            f"{folder}: the command wrote {len(files)} .json files; expected an evaluation of ours, "
            "results_*.json of lm-eval, metrics.json of OLMES or one file of numbers by name"
        )
    return Tool.other, files[0]


def _lm_eval(content: Any) -> dict[str, float]:
    found = {}
    for task, results in content["results"].items():
        for key, value in results.items():
            metric, comma, chosen = key.partition(",")
            if not comma or not _is_number(value):  # an alias, a count, or an "N/A" standard error
                continue
            error = _STDERR if metric.endswith(_STDERR) else ""
            kept = "" if chosen == "none" else f",{chosen}"
            found[f"{task}/{metric.removesuffix(_STDERR)}{kept}{error}"] = value
    return found


def _olmes(content: Any) -> dict[str, float]:
    if "tasks" in content:
        scores = {one["alias"]: one["metrics"].get("primary_score") for one in content["tasks"]}
    else:
        scores = {one["task"]: one.get("primary_score") for one in content["metrics"]}
    return {name: score for name, score in scores.items() if _is_number(score)}


def _other(content: Any) -> dict[str, float]:
    wrong = [name for name, value in content.items() if not _is_number(value)]
    if wrong:
        raise ValueError(f"{wrong[0]} is not a finite number")
    return content


_READERS = {Tool.lm_eval: _lm_eval, Tool.olmes: _olmes, Tool.other: _other}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
