"""Rejudging of an evaluation's stored completions, without generating."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_model_project.atomic import replacing, write_json
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.evaluation import outputs
from coding_model_project.evaluation.dates import Window
from coding_model_project.evaluation.journal import storage_errors, to_line
from coding_model_project.evaluation.plan import DataSet, Sample, load_datasets
from coding_model_project.evaluation.protocols import EvalProtocol
from coding_model_project.evaluation.rejudging.changes import Change, Judgement, Rejudged, count
from coding_model_project.evaluation.rejudging.judging import Rules, Stored, judge_again
from coding_model_project.evaluation.results import (
    COMPLETIONS,
    METRICS,
    RESULTS,
    RUN_INFO,
    Result,
    read_evaluation,
    with_completions,
)
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.runs.folder import RunFolder, plain_config, sole_writer, value_at
from coding_model_project.sandbox.sandbox_config import SandboxConfig

BACKUPS = "before_rejudge"
"""Folder of the previous results, in numbered subfolders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Options of a rejudging."""

    sandbox: SandboxConfig
    datasets: Sequence[str] = ()
    """Data sets to use instead of those in the evaluation's configuration."""
    data_dir: Path | None = None
    force: bool = False
    """Judge even if problems have changed."""
    dry_run: bool = False
    """Write nothing."""


def rejudge_evaluation(folder: Path, given: Given, *, say: Callable[[str], None]) -> Rejudged:
    """Judge an evaluation's completions again and replace the results in its folder.

    `before_rejudge/` keeps the previous results.

    Raises:
        ConfigError: the completions or settings are not stored, or the problems are missing or have
            changed.
        DataError: a file is damaged.
        SandboxError: the sandbox failed; nothing is written.
    """
    evaluation = read_evaluation(folder)
    if not (folder / COMPLETIONS).is_file():
        raise ConfigError(f"{folder}: nothing to judge without {COMPLETIONS}; evaluate again")
    with sole_writer(folder, "evaluation"):
        info = json.loads((folder / RUN_INFO).read_text())
        protocol = _protocol(folder, info)
        datasets, notes = _datasets(folder, info, given)
        stored = _stored(folder, evaluation.results, datasets)
        rules = Rules(
            sandbox=given.sandbox,
            style=protocol.prompt,
            stop_early=protocol.stop_early,
            rule=protocol.rule,
            stop_at_limit=True,
        )
        results, changes = judge_again(stored, rules, grader_before=protocol.grader_version)
        if protocol.repair_rounds and protocol.grader_version != GRADER_VERSION:
            notes.append(
                "repairs followed the old grader's verdicts on public tests; only the last answers are "
                "rejudged"
            )
        if not given.dry_run:
            with storage_errors(folder):
                _write(folder, info, protocol, datasets, stored, results, changes)
            outputs.write_report(folder)
    after = [Judgement.of_result(result) for result in results]
    rows = [(one.sample.dataset, one.before, now) for one, now in zip(stored, after, strict=True)]
    return Rejudged(
        path=folder,
        grader_before=protocol.grader_version,
        grader_after=GRADER_VERSION,
        samples=len(stored),
        skipped={},
        changes=tuple(changes),
        datasets=count(rows),
        notes=tuple(notes),
        written=not given.dry_run,
    )


def _protocol(folder: Path, info: Mapping[str, Any]) -> EvalProtocol:
    try:
        return EvalProtocol.read(info["protocol"])
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{folder / RUN_INFO}: incomplete protocol ({error}), as in evaluations of other tools and "
            "older versions; evaluate again"
        ) from error


def _datasets(
    folder: Path, info: Mapping[str, Any], given: Given
) -> tuple[tuple[DataSet, ...], list[str]]:
    """Return the evaluated data sets and notes about changes.

    Raises:
        ConfigError: problems are missing, or have changed and `force` is false.
    """
    settings: Mapping[str, Any] = {}
    if RunFolder(folder).config.is_file():
        recorded = plain_config(RunFolder(folder).config)
        settings = value_at(recorded, "coding.evaluation") or {}
    words = list(given.datasets) or list(settings.get("datasets") or ())
    if not words:
        raise ConfigError(
            f"{folder}: config.yaml names no data sets; pass --dataset {'|'.join(info['datasets'])}=PATH"
        )
    data_dir = settings.get("data_dir")
    datasets = load_datasets(
        words,
        data_dir=given.data_dir or (Path(data_dir) if data_dir else None),
        limit=settings.get("limit"),
        max_tests=settings.get("max_tests"),
        window=Window.parse(settings.get("from_date"), settings.get("to_date")),
        split=settings.get("split"),
        columns=settings.get("columns"),
    )
    by_name = {data.name: data for data in datasets}
    if missing := [name for name in info["datasets"] if name not in by_name]:
        raise ConfigError(f"{folder}: {missing[0]} is missing; add --dataset {missing[0]}=PATH")
    notes = []
    for name, before in info["datasets"].items():
        if before["version"] != by_name[name].version:
            how = (
                f"{folder}: the problems of {name} have changed since the evaluation (statements, tests, "
                f"limits or order: version {before['version']} → {by_name[name].version})"
            )
            if not given.force:
                raise ConfigError(
                    f"{how}; pass the file that was evaluated (--dataset {name}=PATH), or add --force to "
                    "use the current problems"
                )
            notes.append(f"{how}; --force judges with the current ones")
    return tuple(by_name[name] for name in info["datasets"]), notes


def _stored(folder: Path, results: Sequence[Result], datasets: Sequence[DataSet]) -> list[Stored]:
    problems = {(data.name, one.id): one for data in datasets for one in data.problems}
    stored = []
    for generated, result in with_completions(folder, results).values():
        problem = problems.get((generated.dataset, generated.problem))
        if problem is None:
            raise ConfigError(
                f"{folder}: {generated.dataset} lacks the evaluated problem {generated.problem}; pass "
                "the file that was evaluated (--dataset NAME=PATH)"
            )
        sample = Sample(generated.dataset, problem, generated.sample, generated.seed)
        stored.append(
            Stored(
                sample=sample,
                generated=generated,
                before=Judgement.of_result(result),
                name=str(generated.sample),
            )
        )
    if not stored:
        raise DataError(f"{folder}: no judged samples")
    return stored


def _write(
    folder: Path,
    info: Mapping[str, Any],
    protocol: EvalProtocol,
    datasets: Sequence[DataSet],
    stored: Sequence[Stored],
    results: Sequence[Result],
    changes: Sequence[Change],
) -> None:
    """Replace the results in the folder, after copying the old ones to a backup folder."""
    number = 1 + len(list(folder.glob(f"{BACKUPS}/*")))
    kept = folder / BACKUPS / str(number)
    kept.mkdir(parents=True)
    for name in (RESULTS, RUN_INFO, METRICS, "summary.json"):
        if (folder / name).exists():
            shutil.copy2(folder / name, kept / name)
    versions = {data.name: data.version for data in datasets}
    today = protocol.judged_today()
    history = [
        *info.get("rejudged", ()),
        {
            "at": round(time.time(), 3),
            "grader_before": protocol.grader_version,
            "grader_after": GRADER_VERSION,
            "changed": len(changes),
            "before": str(kept.relative_to(folder)),
        },
    ]
    named = {name: about | {"version": versions[name]} for name, about in info["datasets"].items()}
    with replacing(folder / RESULTS) as partial:
        partial.write_bytes(b"".join(map(to_line, results)))
    fresh = {**info, "protocol": today.described(versions), "datasets": named, "rejudged": history}
    write_json(folder / RUN_INFO, fresh)
    every = [(one.sample, one.generated, now) for one, now in zip(stored, results, strict=True)]
    order = {data.name: place for place, data in enumerate(datasets)}
    places = {(d.name, p.id): n for d in datasets for n, p in enumerate(d.problems)}
    every.sort(key=lambda one: (order[one[0].dataset], places[one[0].key[:2]], one[0].number))
    metrics = outputs.write_metrics(folder, list(results), datasets, today, info.get("cutoff"))
    outputs.write_rollouts(folder, every, today)
    outputs.write_qa_logs(folder, every, today)
    outputs.write_summary(folder, metrics, every)
