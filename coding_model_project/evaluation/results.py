"""An evaluation's folder as other code reads it: a line per judged sample, and what was evaluated how.

results.jsonl      a `Result` per line, in the order of judging
run_info.json      {"model", "seed", "protocol": {"name", "hash", ...its settings}, "datasets", ...}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from coding_model_project.errors import DataError

RESULTS = "results.jsonl"
RUN_INFO = "run_info.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One sample of one problem, judged or found to be ungradable."""

    dataset: str
    problem: str
    sample: int
    """Which of the problem's samples, from 0."""
    passed: bool | None
    """Whether every hidden test accepts it; None if it could not be graded."""
    pass_fraction: float | None
    error: str | None
    """The first failing test's error type; None if accepted or ungradable."""
    ungradable: str | None
    """Why it has no verdict. Part of no rate, and never zero quietly."""
    tokens: int
    """Of the completion."""
    truncated: bool
    """The completion was ended by the token limit and not by the model."""
    judge_s: float
    """Wall seconds of judging; 0 for a verdict from the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A finished (or cut short) evaluation, read back."""

    path: Path
    model: str
    seed: int
    protocol: str
    protocol_hash: str
    """Equal for two evaluations whose numbers may be compared."""
    results: tuple[Result, ...]

    def datasets(self) -> list[str]:
        """Names of data sets, in the order in which they were evaluated."""
        return list(dict.fromkeys(result.dataset for result in self.results))

    def by_problem(self, dataset: str) -> dict[str, list[Result]]:
        """Graded results of one data set's problems; an ungradable sample is left out."""
        groups: dict[str, list[Result]] = {}
        for result in self.results:
            if result.dataset == dataset and result.passed is not None:
                groups.setdefault(result.problem, []).append(result)
        return groups


def to_line(result: Result) -> bytes:
    """One line of results.jsonl."""
    return orjson.dumps(asdict(result)) + b"\n"


def read_results(path: Path) -> Iterator[Result]:
    """The results in a file.

    Raises:
        DataError: a line is not a result; names the file and the line. A last line without its end
            is what a kill leaves, and is passed over.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield Result(**orjson.loads(line))
            except (ValueError, TypeError) as error:
                raise DataError(f"{path}, line {number}: not a result ({error})") from error


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation's folder.

    Raises:
        DataError: there is no evaluation in it, or a file of it is damaged.
    """
    try:
        info = json.loads((path / RUN_INFO).read_text())
        return Evaluation(
            path=path,
            model=info["model"],
            seed=info["seed"],
            protocol=info["protocol"]["name"],
            protocol_hash=info["protocol"]["hash"],
            results=tuple(read_results(path / RESULTS)),
        )
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: not an evaluation's folder (it has no {error.filename})"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path / RUN_INFO}: damaged ({error!r})") from error
