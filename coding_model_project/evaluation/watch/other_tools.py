"""Results of other tools in the folder that a watch command wrote to.

lm-evaluation-harness  MODEL/results_TIME.json: {"results": {task: {"metric,filter": number,
                       "metric_stderr,filter": number}}}
OLMES                  metrics.json: {"tasks": [{"alias": name, "metrics": {"primary_score": number}}]};
                       older ones {"metrics": [{"task": name, "primary_score": number}]}
any other              one .json file: {name: number, name_stderr: number}
"""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Any

from coding_model_project import strict_json
from coding_model_project.errors import DataError
from coding_model_project.evaluation.watch.curve import Measure

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
    measures = {
        name: _measure(value, numbers.get(f"{name}{_STDERR}"))
        for name, value in numbers.items()
        if not name.endswith(_STDERR)
    }
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
            if not comma or not _is_number(
                value
            ):  # skip aliases, counts, and "N/A" standard errors
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


def _measure(value: float, stderr: float | None) -> Measure:
    if stderr is None:
        return Measure(value=value)
    return Measure(value=value, low=value - _HALF_WIDTH * stderr, high=value + _HALF_WIDTH * stderr)
