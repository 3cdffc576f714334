"""Scores of training runs' checkpoints by step.

curve.jsonl                 a `Point` per line, in the order of evaluation
RUN/evaluations.jsonl       the same for `report`, in the format of metrics.jsonl, in each run's folder
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
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
class Score:
    """pass@1 on one data set."""

    pass_at_1: float
    low: float
    high: float
    """95% interval over problems."""
    problems: int
    ungradable: int
    """Samples without a verdict, which are excluded from rates."""
    tokens: int
    judge_s: float

    @property
    def value(self) -> float:
        """pass@1, under the name in `Measure`."""
        return self.pass_at_1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A value measured by another tool, in that tool's unit."""

    value: float
    low: float | None = None
    high: float | None = None
    """95% interval from the tool's standard error; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One checkpoint's scores."""

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
    datasets: Mapping[str, Score]
    measures: Mapping[str, Measure] = field(default_factory=dict)
    """Values of another tool, by task and metric."""

    @property
    def values(self) -> dict[str, Score | Measure]:
        """All scores and measures, by name."""
        return {**self.datasets, **self.measures}


def scores(evaluation: Evaluation) -> dict[str, Score]:
    """Return pass@1 by data set, over problems with a graded sample; omits data sets without any."""
    found = {}
    for name in evaluation.datasets():
        of = dataset_metrics([one for one in evaluation.results if one.dataset == name], (1,))
        if rate := of["pass@k"].get("1"):
            found[name] = Score(
                pass_at_1=rate["value"],
                low=rate["low"],
                high=rate["high"],
                problems=rate["problems"],
                ungradable=of["ungradable"],
                tokens=int(of["tokens"]["total"]),
                judge_s=of["judge_s"]["total"],
            )
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
    for name, score in point.datasets.items():
        metric = f"{name} ({point.protocol})"
        data |= {f"{metric}/{key}": getattr(score, key) for key in ("pass_at_1", "low", "high")}
    for name, measure in point.measures.items():
        known = {key: value for key, value in asdict(measure).items() if value is not None}
        data |= {f"{name} ({point.protocol})/{key}": value for key, value in known.items()}
    with run.evaluations.open("ab") as file:
        file.write(orjson.dumps({"step": point.step, "data": data}) + b"\n")


def view(curve: Curve) -> RenderableType:
    """Render each run's curve: a sparkline per data set or metric, and a row per step."""
    parts: list[RenderableType] = []
    by_run: dict[str, list[Point]] = {}
    for point in curve.points:
        by_run.setdefault(point.run, []).append(point)
    for run, points in by_run.items():
        names = list(dict.fromkeys(name for point in points for name in point.values))
        parts.append(Text(run, style="bold"))
        for name in names:
            found = [point.values[name] for point in points if name in point.values]
            first, last = (_number(one, one.value) for one in (found[0], found[-1]))
            line = sparkline([one.value for one in found])
            parts.append(Text(f"{name}  {line}  {first} → {last}"))
        rows = [(f"{p.step}", *(format_score(p.values.get(one)) for one in names)) for p in points]
        parts.append(plain_table(("step", *names), rows, left=0))
    return Group(*parts)


def format_score(one: Score | Measure | None) -> str:
    """Format a score or measure with its interval."""
    if one is None:
        return ""
    if one.low is None or one.high is None:
        return _number(one, one.value)
    return f"{_number(one, one.value)} ({_number(one, one.low)} to {_number(one, one.high)})"


def _number(of: Score | Measure, value: float) -> str:
    return f"{value:.1%}" if isinstance(of, Score) else f"{value:.4g}"


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
