"""What the checkpoints of trainings came to, by step.

curve.jsonl                 a `Point` per line, in the order of evaluation
RUN/evaluations.jsonl       the same for `report`, in the form of metrics.jsonl, in each training's folder
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from coding_model_project.errors import DataError
from coding_model_project.evaluation.results import Evaluation
from coding_model_project.evaluation.statistics.intervals import bootstrap_interval
from coding_model_project.evaluation.statistics.pass_at_k import pass_at_k
from coding_model_project.runs.folder import RunFolder, write_text
from coding_model_project.runs.live_view import sparkline

CURVE = "curve.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """pass@1 on one data set."""

    pass_at_1: float
    low: float
    high: float
    """95% by bootstrap over problems."""
    problems: int
    ungradable: int
    """Samples without a verdict, which are part of no rate."""
    tokens: int
    judge_s: float


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
    protocol_hash: str
    seconds: float
    """Wall time of the evaluation, its start-up included."""
    datasets: Mapping[str, Score]


def scores(evaluation: Evaluation) -> dict[str, Score]:
    """pass@1 by data set, of the problems that have a graded sample; a set without any is left out."""
    found = {}
    for name in evaluation.datasets():
        groups = evaluation.by_problem(name).values()
        rates = [pass_at_k(len(group), sum(bool(r.passed) for r in group), 1) for group in groups]
        results = [result for result in evaluation.results if result.dataset == name]
        if not rates:
            continue
        low, high = bootstrap_interval(rates)
        found[name] = Score(
            pass_at_1=fmean(rates),
            low=low,
            high=high,
            problems=len(rates),
            ungradable=sum(result.ungradable is not None for result in results),
            tokens=sum(result.tokens for result in results),
            judge_s=round(sum(result.judge_s for result in results), 3),
        )
    return found


class Curve:
    """The points so far, kept in a file that is rewritten whole: none is lost or there twice."""

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
        """By run and step."""
        return sorted(self._points.values(), key=lambda point: (point.run, point.step))

    def add(self, point: Point) -> None:
        """Keep a point, and show it to its training's report."""
        run = RunFolder(Path(point.run))
        if run.run_json.exists():
            _add_to_run(run, point)
        self._points[point.key] = point  # last: what is in here is not evaluated again
        lines = [orjson.dumps(asdict(one)).decode() + "\n" for one in self._points.values()]
        write_text(self._path, "".join(lines))


def _read(path: Path) -> list[Point]:
    points = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else [], 1):
        try:
            row = orjson.loads(line)
            row["datasets"] = {name: Score(**score) for name, score in row["datasets"].items()}
            points.append(Point(**row))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}, line {number}: not a point of a curve") from error
    return points


def _add_to_run(run: RunFolder, point: Point) -> None:
    data = {}
    for name, score in point.datasets.items():
        metric = f"{name} ({point.protocol})"
        data |= {f"{metric}/{key}": getattr(score, key) for key in ("pass_at_1", "low", "high")}
    with run.evaluations.open("ab") as file:
        file.write(orjson.dumps({"step": point.step, "data": data}) + b"\n")


def view(curve: Curve) -> RenderableType:
    """Each run's curve: a line of text per data set, and a row per step."""
    parts: list[RenderableType] = []
    by_run: dict[str, list[Point]] = {}
    for point in curve.points:
        by_run.setdefault(point.run, []).append(point)
    for run, points in by_run.items():
        names = list(dict.fromkeys(name for point in points for name in point.datasets))
        parts.append(Text(run, style="bold"))
        parts += [Text(f"{name}  {_line(points, name)}") for name in names]
        parts.append(_steps(points, names))
    return Group(*parts)


def _line(points: list[Point], name: str) -> str:
    values = [point.datasets[name].pass_at_1 for point in points if name in point.datasets]
    return f"{sparkline(values)}  {values[0]:.1%} → {values[-1]:.1%}"


def _steps(points: list[Point], names: list[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("step", *names):
        table.add_column(column, justify="right")
    for point in points:
        row = [point.datasets.get(name) for name in names]
        table.add_row(f"{point.step}", *(said(score) for score in row))
    return table


def said(score: Score | None) -> str:
    """A score with its interval."""
    if score is None:
        return ""
    return f"{score.pass_at_1:.1%} ({score.low:.1%} to {score.high:.1%})"
