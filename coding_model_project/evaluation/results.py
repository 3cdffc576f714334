"""An evaluation's folder as other code reads it: a line per judged sample, and what was evaluated how.

completions.jsonl  a `Generated` per line, in the order in which generation ended
results.jsonl      a `Result` per line, in the order of judging
metrics.json       rates, shares and costs by data set (`scores.dataset_metrics`)
run_info.json      {"model", "seed", "protocol": {"name", "hash", ...its settings},
                    "datasets": {name: {"version", ...}}, ...}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.evaluation.journal import read_rows
from coding_model_project.evaluation.journal import to_line as to_line  # evaluations of your own
from coding_model_project.grading.brief import program_hash as program_hash

COMPLETIONS = "completions.jsonl"
RESULTS = "results.jsonl"
RUN_INFO = "run_info.json"
METRICS = "metrics.json"

Key = tuple[str, str, int]
"""Data set, problem and number of a sample: what it is known by in all files."""

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
    """All that were generated, reasoning included."""
    truncated: bool
    """Ended by the token limit and not by the model."""
    reasoning: str = ""
    """Text of the reasoning where the back end gives it apart; it is not judged."""
    reasoning_tokens: int | None = None
    """Of `tokens`, those of the reasoning; None where the back end does not count them."""
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
    def key(self) -> Key:
        return self.dataset, self.problem, self.sample

    @property
    def estimated_reasoning_tokens(self) -> int | None:
        """Of `tokens`, the reasoning's share by characters; None without its text, or after repairs."""
        if not self.reasoning or len(self.attempts) > 1:
            return None
        share = len(self.reasoning) / (len(self.reasoning) + len(self.completion))
        return round(self.tokens * share)

    @property
    def cut_in_reasoning(self) -> bool:
        """The token limit ended it before an answer began, as far as the back end tells."""
        if not self.truncated:
            return False
        if not self.completion.strip():
            return bool(self.reasoning or self.reasoning_tokens)
        return not self.attempts and 0 < self.tokens == self.reasoning_tokens

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
    reasoning_tokens: int | None = None
    """Of `tokens`, those of the reasoning; None where nothing is known of them."""
    reasoning_estimated: bool = False
    """`reasoning_tokens` is an estimate: the reasoning's share of all characters, where a server gives
    its text and no count."""
    cut_in_reasoning: bool = False
    """The token limit ended it before an answer began."""
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

    @property
    def key(self) -> Key:
        return self.dataset, self.problem, self.sample


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


def with_completions(
    folder: Path, results: Iterable[Result]
) -> dict[Key, tuple[Generated, Result]]:
    """Judged samples of an evaluation's folder with their completions, in the order of judging.

    Returns:
        By data set, problem and number.

    Raises:
        DataError: a file is damaged, or a verdict's completion is missing.
    """
    generated = {one.key: one for one in read_rows(folder / COMPLETIONS, Generated)}
    found = {}
    for result in results:
        if result.key not in generated:
            raise DataError(
                f"{folder}: sample {result.sample} of {result.problem} has a verdict, but no completion "
                f"in {COMPLETIONS}"
            )
        found[result.key] = generated[result.key], result
    return found


def refuse_another(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Make sure that an evaluation goes on as it began.

    Args:
        before: how, by name, as the folder's files of JSON have it.
        now: the same of what would go on there.

    Raises:
        ConfigError: something differs.
    """
    for key, value in now.items():
        if before.get(key) != json.loads(json.dumps(value)):
            raise ConfigError(
                f"{folder}: began with another {key} ({before.get(key)} → {value}), maybe because "
                "problems or the grader have changed; choose another folder"
            )


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation's folder.

    Raises:
        DataError: there is no evaluation in it, or a file of it is damaged.
    """
    try:
        info = json.loads((path / RUN_INFO).read_text())
        results = tuple(read_rows(path / RESULTS, Result))
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


def read_metrics(run: Path) -> Metrics:
    """Read the metrics.json of an evaluation.

    Raises:
        DataError: the evaluation is not finished, or the file is damaged.
    """
    try:
        return json.loads((run / METRICS).read_text())
    except FileNotFoundError as error:
        raise DataError(
            f"{run}: the evaluation is not finished; the same command goes on with it"
        ) from error
    except ValueError as error:
        raise DataError(f"{run / METRICS}: damaged ({error})") from error


def _once(results: tuple[Result, ...], path: Path) -> tuple[Result, ...]:
    """Raises:
    DataError: a sample is there twice, and would count twice.
    """
    seen = set()
    for result in results:
        if result.key in seen:
            raise DataError(f"{path}: sample {result.sample} of {result.problem} is there twice")
        seen.add(result.key)
    return results
