"""An evaluation's folder as other code reads it: a line per judged sample, and what was evaluated how.

completions.jsonl  a `Generated` per line, in the order in which generation ended
results.jsonl      a `Result` per line, in the order of judging
metrics.json       rates, shares and costs by data set (`scores.dataset_metrics`)
run_info.json      {"model", "seed", "protocol": {"name", "hash", ...its settings},
                    "datasets": {name: {"version", ...}}, ...}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson

from coding_model_project.errors import DataError

COMPLETIONS = "completions.jsonl"
RESULTS = "results.jsonl"
RUN_INFO = "run_info.json"
METRICS = "metrics.json"
Metrics = dict[str, Any]
"""The content of metrics.json: by data set, as `scores.dataset_metrics` gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One completion, before it is judged."""

    dataset: str
    problem: str
    sample: int
    seed: int
    completion: str
    tokens: int
    truncated: bool
    """Ended by the token limit and not by the model."""
    refused: str | None = None
    """Why the model could not be asked; there is no completion then, and no score."""
    seconds: float
    """From the request to its answer, waiting beside others included."""
    at: float
    """When it ended, in seconds since the epoch."""
    attempts: Sequence[Mapping[str, Any]] = ()
    """Of a protocol with repair, as `repair_rounds.Episode.plain` gives them: `completion` is the last
    one's, `tokens` are of all."""

    @property
    def public_judge_s(self) -> float:
        """Wall seconds of judging public tests between attempts."""
        return sum(attempt["judge_s"] for attempt in self.attempts)


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
    """Of the completion; with repair of all attempts."""
    truncated: bool
    """The completion was ended by the token limit and not by the model."""
    judge_s: float
    """Wall seconds of judging; 0 for a verdict from the cache."""
    repairs: int = 0
    """Attempts after the first."""
    repair_s: float = 0.0
    """Wall seconds of judging public tests between attempts."""
    at: float = 0.0
    """When it was judged, in seconds since the epoch."""
    program: str | None = None
    """`program_hash` of the code that was found; None without one."""
    verdict: Mapping[str, Any] = field(default_factory=dict)
    """What else is known, as `grading.brief.brief` gives it; empty if ungradable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A finished (or cut short) evaluation, read back."""

    path: Path
    model: str
    seed: int
    protocol: str
    protocol_hash: str
    """Equal for two evaluations whose numbers may be compared."""
    settings: Mapping[str, object]
    """The protocol's, and the versions of the data: to say in what two evaluations differ."""
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


def to_line(result: Result | Generated) -> bytes:
    """One line of results.jsonl or completions.jsonl."""
    return orjson.dumps(asdict(result)) + b"\n"


def program_hash(code: str) -> str:
    """Equal for equal programs."""
    return hashlib.sha256(code.encode()).hexdigest()[:12]


_Row = TypeVar("_Row", Generated, Result)


def read_results(path: Path) -> Iterator[Result]:
    """The results in a file.

    Raises:
        DataError: a line is not a result; names the file and the line. A last line without its end
            is what a kill leaves, and is passed over.
    """
    return _read(path, Result)


def read_completions(path: Path) -> Iterator[Generated]:
    """The completions in a file.

    Raises:
        DataError: as `read_results`.
    """
    return _read(path, Generated)


def _read(path: Path, kind: type[_Row]) -> Iterator[_Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield kind(**orjson.loads(line))
            except (ValueError, TypeError) as error:
                what = "a result" if kind is Result else "a completion"
                raise DataError(f"{path}, line {number}: not {what} ({error})") from error


def read_samples(folder: Path) -> dict[tuple[str, str, int], tuple[Generated, Result]]:
    """All judged samples of an evaluation's folder with their completions, in the order of judging.

    Returns:
        By data set, problem and number.

    Raises:
        DataError: a file is damaged, or a verdict's completion is missing.
    """
    generated = {
        (one.dataset, one.problem, one.sample): one
        for one in read_completions(folder / COMPLETIONS)
    }
    found = {}
    for result in read_results(folder / RESULTS):
        key = result.dataset, result.problem, result.sample
        if key not in generated:
            raise DataError(
                f"{folder}: sample {result.sample} of {result.problem} has a verdict, but no completion "
                f"in {COMPLETIONS}"
            )
        found[key] = generated[key], result
    return found


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation's folder.

    Raises:
        DataError: there is no evaluation in it, or a file of it is damaged.
    """
    try:
        info = json.loads((path / RUN_INFO).read_text())
        results = tuple(read_results(path / RESULTS))
        return Evaluation(
            path=path,
            model=info["model"],
            seed=info["seed"],
            protocol=info["protocol"]["name"],
            protocol_hash=info["protocol"]["hash"],
            settings={
                **{k: v for k, v in info["protocol"].items() if k not in ("name", "hash")},
                "data": info["datasets"],
            },
            results=_once(results, path / RESULTS),
        )
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: not an evaluation's folder (it has no {error.filename})"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path / RUN_INFO}: damaged ({error!r})") from error


def _once(results: tuple[Result, ...], path: Path) -> tuple[Result, ...]:
    """Raises:
    DataError: a sample is there twice, and would count twice.
    """
    seen = set()
    for result in results:
        key = result.dataset, result.problem, result.sample
        if key in seen:
            raise DataError(f"{path}: sample {result.sample} of {result.problem} is there twice")
        seen.add(key)
    return results
