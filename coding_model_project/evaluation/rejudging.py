"""Rejudging of evaluations, whose results are replaced, and of training runs, which stay unchanged."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coding_model_project.atomic import replacing, write_json
from coding_model_project.data.problems import read_problems
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.evaluation import outputs
from coding_model_project.evaluation.changes import (
    Change,
    OpenJudge,
    Rejudged,
    Stored,
    count,
    judge_again,
)
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.evaluation.journal import storage_errors, to_line
from coding_model_project.evaluation.plan import DataSet, EvalProtocol, Sample, load_datasets
from coding_model_project.evaluation.results import (
    COMPLETIONS,
    METRICS,
    RESULTS,
    RUN_INFO,
    Generated,
    Result,
    read_evaluation,
    with_completions,
)
from coding_model_project.grading.base import GRADER_VERSION, TaskGraders
from coding_model_project.grading.judge import open_judge
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.readings import CountedBy
from coding_model_project.grading.rewards import RewardKind
from coding_model_project.runs.folder import RunFolder, plain_config, sole_writer, value_at
from coding_model_project.runs.rollouts import Rollout, read_rollouts
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import Problem

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
    report: outputs.Report | None = None
    """Writes the page about an evaluation."""
    tasks: TaskGraders | None = None
    """See `grading.kinds.Parts`."""

    def judge(self, style: PromptStyle, **how: bool) -> OpenJudge:
        """Return what opens a judge; `how` are options of `open_judge`."""
        return partial(open_judge, self.sandbox, style=style, tasks=self.tasks, **how)


def rejudge_evaluation(folder: Path, given: Given) -> Rejudged:
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
        try:
            protocol = EvalProtocol.read(info["protocol"])
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"{folder / RUN_INFO}: incomplete protocol ({error}), as in evaluations of other tools "
                "and older versions; evaluate again"
            ) from error
        datasets, notes = _datasets(folder, info, given)
        stored = _stored(folder, evaluation.results, datasets)
        results, changes = judge_again(
            stored,
            given.judge(protocol.prompt, stop_early=protocol.stop_early, stop_at_limit=True),
            stop_early=protocol.stop_early,
            rule=protocol.rule,
            grader_before=protocol.grader_version,
        )
        if protocol.repair_rounds and protocol.grader_version != GRADER_VERSION:
            notes.append(
                "repairs followed the old grader's verdicts on public tests; only the last answers are "
                "rejudged"
            )
        if not given.dry_run:
            with storage_errors(folder):
                _write(folder, info, protocol, datasets, stored, results, changes)
            outputs.write_report(RunFolder(folder), given.report)
    return _rejudged(folder, given, protocol.grader_version, stored, results, changes, notes)


def _rejudged(
    folder: Path,
    given: Given,
    grader_before: str,
    stored: Sequence[Stored],
    results: Sequence[Result],
    changes: Sequence[Change],
    notes: Sequence[str],
    skipped: Mapping[str, int] = MappingProxyType({}),
) -> Rejudged:
    pairs = zip(stored, results, strict=True)
    return Rejudged(
        path=folder,
        grader_before=grader_before,
        grader_after=GRADER_VERSION,
        samples=len(stored),
        skipped=dict(skipped),
        changes=tuple(changes),
        datasets=count((one.before, now) for one, now in pairs),
        notes=tuple(notes),
        written=not given.dry_run,
    )


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
    known = (field.name for field in fields(EvaluationConfig))
    chosen = EvaluationConfig(**{name: settings[name] for name in known if name in settings})
    chosen.datasets = list(given.datasets) or list(settings.get("datasets") or ())
    chosen.data_dir = str(given.data_dir) if given.data_dir else chosen.data_dir
    if not chosen.datasets:
        raise ConfigError(
            f"{folder}: config.yaml names no data sets; pass --dataset {'|'.join(info['datasets'])}=PATH"
        )
    datasets = load_datasets(chosen)
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
                before=result,
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
    outputs.write_all(folder, every, datasets, today, info.get("cutoff"))


# ── rollouts of a training run ────────────────────────────────────────────────────────────────────

CHANGES, SUMMARY = "rejudged.jsonl", "rejudged.json"
_BASH = "shell episodes, whose environments no longer exist"


def rejudge_rollouts(folder: Path, given: Given, *, problems: Path | None) -> Rejudged:
    """Judge a training run's stored samples again, and write the changes beside them.

    Args:
        problems: file of problems to use instead of those in the run's configuration.

    Raises:
        ConfigError: samples, settings or problems are missing, or a prompt does not match its problem.
        DataError: a file is damaged.
        SandboxError: the sandbox failed; nothing is written.
    """
    run = RunFolder(folder)
    if not run.config.is_file():
        raise ConfigError(f"{folder}: not a run's folder (it has no config.yaml)")
    coding = plain_config(run.config).get("coding") or {}
    try:
        style, kind = PromptStyle(coding["prompt"]), str(coding["reward"]["kind"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{run.config}: lacks the settings of prompts and rewards ({error}), as in runs of older "
            "versions, which cannot be rejudged"
        ) from error
    paths = [problems] if problems else [Path(path) for path in coding.get("problems") or ()]
    if missing := [path for path in paths if not path.is_file()]:
        raise ConfigError(
            f"{folder}: its file of problems {missing[0]} is missing; pass --problems FILE"
        )
    known = {one.id: one for path in paths for one in read_problems(path)}
    grader_before = str(run.provenance().get("grader_version", "unknown"))
    skipped: Counter[str] = Counter()
    stored: list[Stored] = []
    for row in read_rollouts(folder):
        if "replies" in row.extra:
            skipped[_BASH] += 1
            continue
        problem = known.get(row.problem)
        if problem is None:
            raise ConfigError(
                f"{folder}: problem {row.problem} is missing; pass the training run's file of problems "
                "(--problems FILE)"
            )
        if not (given.force or "".join(problem.statement.split()) in "".join(row.prompt.split())):
            raise ConfigError(
                f"{folder}: the prompt of {row.problem} (step {row.step}) lacks that problem's "
                "statement, so the problems have changed; pass the training run's file (--problems "
                "FILE), or add --force to use these problems"
            )
        stored.append(_of_row(row, problem, len(stored)))
    if not stored:
        why = ", ".join(f"{n} {reason}" for reason, n in skipped.items())
        raise ConfigError(f"{folder}: no samples to judge{f' ({why})' if why else ''}")
    stop_early = kind == RewardKind.sparse
    results, changes = judge_again(
        stored,
        given.judge(style, stop_early=stop_early, stop_at_limit=False),
        stop_early=stop_early,
        rule=CountedBy.ours,
        grader_before=grader_before,
    )
    unchanged = ["the training run and its rollouts are unchanged"]
    found = _rejudged(folder, given, grader_before, stored, results, changes, unchanged, skipped)
    if not given.dry_run:
        with storage_errors(folder):
            (folder / CHANGES).write_bytes(b"".join(map(to_line, changes)))
            plain = json.loads(json.dumps(asdict(found), default=str))
            write_json(folder / SUMMARY, {k: v for k, v in plain.items() if k != "changes"})
    return found


def _of_row(row: Rollout, problem: Problem, number: int) -> Stored:
    """Convert a rollout to a stored completion; from an episode of repairs, take the last answer."""
    try:
        attempts = row.extra.get("attempts") or ()
        completion = attempts[-1]["completion"] if attempts else row.completion
        before = Result(
            dataset=row.split,
            problem=row.problem,
            sample=number,
            passed=row.verdict["error"] is None,
            pass_fraction=None,
            error=row.verdict["error"],
            ungradable=None,
            tokens=row.tokens,
            truncated=False,
            judge_s=0.0,
            program=row.verdict["program"],
            verdict=row.verdict,
        )
    except (KeyError, TypeError) as error:
        raise DataError(
            f"step {row.step}, sample {row.sample}: its verdict or answer was not stored ({error!r}), as "
            "in runs of older versions"
        ) from error
    generated = Generated(
        dataset=row.split,
        problem=row.problem,
        sample=number,
        seed=0,
        completion=completion,
        tokens=row.tokens,
        truncated=False,
        seconds=0.0,
        at=row.generated_at,
    )
    return Stored(
        sample=Sample(row.split, problem, number, 0),
        generated=generated,
        before=before,
        name=f"{row.sample} of step {row.step}",
    )
