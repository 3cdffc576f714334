"""Files of an evaluation's folder, and functions that read them.

completions.jsonl  a `Generated` per line, in the order of generation
results.jsonl      a `Result` per line, in the order of judging
metrics.json       rates, shares and costs by data set (`scores.dataset_metrics`)
run_info.json      {"model", "seed", "protocol": {"name", "hash", ...its settings},
                    "datasets": {name: {"version", ...}}, ...}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coding_model_project.errors import ConfigError, DataError, SandboxError
from coding_model_project.evaluation.journal import read_rows
from coding_model_project.evaluation.journal import to_line as to_line  # evaluations of your own
from coding_model_project.grading.brief import program_hash as program_hash
from coding_model_project.runs.resuming import differences, listed

COMPLETIONS = "completions.jsonl"
RESULTS = "results.jsonl"
RUN_INFO = "run_info.json"
METRICS = "metrics.json"

_HASH = "protocol.hash: "

Key = tuple[str, str, int]
"""Data set, problem and number of a sample: its key in all files."""

Metrics = dict[str, Any]
"""Content of metrics.json: `scores.dataset_metrics` by data set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A completion before judging."""

    dataset: str
    problem: str
    sample: int
    seed: int
    completion: str
    tokens: int
    """Number of generated tokens, including reasoning."""
    truncated: bool
    """True if the token limit cut it off."""
    reasoning: str = ""
    """Reasoning text, if the back end returns it separately; it is not judged."""
    reasoning_tokens: int | None = None
    """Reasoning tokens, included in `tokens`; None if the back end does not count them."""
    refused: str | None = None
    """Reason why the model could not answer the prompt; then there is no completion and no score."""
    seconds: float
    """Seconds from the request to the answer, including queueing."""
    at: float
    """Time of completion, in seconds since the epoch."""
    attempts: Sequence[Mapping[str, Any]] = ()
    """Attempts of a protocol with repair (`runner`): `completion` is the last
    attempt's, `tokens` counts all attempts."""

    @property
    def key(self) -> Key:
        return self.dataset, self.problem, self.sample

    @property
    def estimated_reasoning_tokens(self) -> int | None:
        """Reasoning tokens, estimated from characters; None without reasoning text or after repairs."""
        if not self.reasoning or len(self.attempts) > 1:
            return None
        share = len(self.reasoning) / (len(self.reasoning) + len(self.completion))
        return round(self.tokens * share)

    @property
    def cut_in_reasoning(self) -> bool:
        """True if the token limit cut it off before the answer began, as far as the back end reports."""
        if not self.truncated:
            return False
        if not self.completion.strip():
            return bool(self.reasoning or self.reasoning_tokens)
        return not self.attempts and 0 < self.tokens == self.reasoning_tokens

    @property
    def public_judge_s(self) -> float:
        """Wall-clock seconds of judging public tests between attempts."""
        return sum(attempt["judge_s"] for attempt in self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A sample of a problem, judged or ungradable."""

    dataset: str
    problem: str
    sample: int
    """Number of the sample within its problem, from 0."""
    passed: bool | None
    """True if it passes every hidden test by the protocol's rule; None if ungradable."""
    pass_fraction: float | None
    error: str | None
    """Error type of the first failing test; None if accepted or ungradable."""
    ungradable: str | None
    """Reason for having no verdict. The sample is excluded from all rates and never counts as 0."""
    tokens: int
    """Tokens of the completion; with repair, of all attempts."""
    truncated: bool
    """True if the token limit cut the completion off."""
    judge_s: float
    """Wall-clock seconds of judging; 0 for a cache hit."""
    reasoning_tokens: int | None = None
    """Reasoning tokens, included in `tokens`; None if unknown."""
    reasoning_estimated: bool = False
    """True if `reasoning_tokens` is estimated from the reasoning's share of characters, because the
    server returns its text without a count."""
    cut_in_reasoning: bool = False
    """True if the token limit cut the completion off before the answer began."""
    repairs: int = 0
    """Number of attempts after the first."""
    repair_s: float = 0.0
    """Wall-clock seconds of judging public tests between attempts."""
    at: float = 0.0
    """Time of judging, in seconds since the epoch."""
    program: str | None = None
    """`program_hash` of the extracted code; None without code."""
    verdict: Mapping[str, Any] = field(default_factory=dict)
    """Details of the verdict (`grading.brief.brief`); empty if ungradable."""

    @property
    def key(self) -> Key:
        return self.dataset, self.problem, self.sample

    @property
    def outcome(self) -> str:
        """`accepted`, `ungradable`, or the error type."""
        if self.passed is None:
            return "ungradable"
        return "accepted" if self.passed else str(self.error)

    @property
    def by_this_judge(self) -> Result:
        """The same sample by this judge's rule, which alone decides what trains a model."""
        if "publisher_passed" not in self.verdict:
            return self
        error = self.verdict["error"]
        return replace(self, passed=error is None, error=error)

    @property
    def by_publisher(self) -> Result:
        """The same sample by its publisher's rule, if its problem has one (`EvalProtocol.rule`)."""
        return replace(self, passed=self.verdict.get("publisher_passed", self.passed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A finished or interrupted evaluation, read from its folder."""

    path: Path
    model: str
    seed: int
    protocol: str
    protocol_hash: str
    """Hash that is equal for evaluations with comparable scores."""
    settings: Mapping[str, Any]
    """Settings of the protocol and versions of the data, to explain how two evaluations differ."""
    results: tuple[Result, ...]

    def datasets(self) -> list[str]:
        """Return the names of the data sets, in the order of evaluation."""
        return list(dict.fromkeys(result.dataset for result in self.results))

    def by_problem(self, dataset: str) -> dict[str, list[Result]]:
        """Return a data set's graded results by problem, without ungradable samples."""
        groups: dict[str, list[Result]] = {}
        for result in self.results:
            if result.dataset == dataset and result.passed is not None:
                groups.setdefault(result.problem, []).append(result)
        return groups


def with_completions(
    folder: Path, results: Iterable[Result]
) -> dict[Key, tuple[Generated, Result]]:
    """Return judged samples with their completions, in the order of judging.

    Returns:
        Completion and result by data set, problem and number.

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


def refuse_outage(results: Sequence[Result], remedy: str) -> None:
    """Refuse results of which an outage left some without a verdict.

    Raises:
        SandboxError: a program could not be run.
    """
    down = [one.ungradable for one in results if (one.ungradable or "").startswith("SandboxError")]
    if down:
        raise SandboxError(
            f"{len(down)} of {len(results)} samples could not be judged ({down[0]}); {remedy}"
        )


def setting_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the settings of `now` that differ from the recorded ones, each as one short line.

    The protocol's hash, which follows from other settings, is named only if nothing else differs.
    """
    known = {key: before.get(key) for key in now}
    found = differences(known, json.loads(json.dumps(now)))
    lines = [line for line in found if not line.startswith(_HASH)] or found
    return [line.removeprefix("protocol.").removeprefix("sampling.") for line in lines]


def refuse_another(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume an evaluation with different settings.

    Args:
        before: settings by name, from the folder's JSON files.
        now: settings of the resuming attempt.

    Raises:
        ConfigError: a setting differs.
    """
    if changed := setting_differences(before, now):
        raise ConfigError(
            f"--out={folder}: differs from the recorded one in {listed(changed)}; pass another folder"
        )


def read_evaluation(path: Path) -> Evaluation:
    """Read an evaluation's folder.

    Raises:
        DataError: the folder has no evaluation, or a damaged file.
    """
    try:
        info = json.loads((path / RUN_INFO).read_text())
        results = tuple(read_rows(path / RESULTS, Result))
        times = Counter(one.key for one in results)
        for one in results:
            if times[one.key] > 1:
                raise DataError(f"{path / RESULTS}: duplicate sample {one.sample} of {one.problem}")
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
            results=results,
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
            f"{run}: the evaluation is not finished; run its command again to resume it"
        ) from error
    except ValueError as error:
        raise DataError(f"{run / METRICS}: damaged ({error})") from error
