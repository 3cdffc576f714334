"""Rejudging of a training run's rollouts, which leaves the run unchanged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coding_model_project.atomic import write_json
from coding_model_project.data.problems import read_problems
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.evaluation.journal import storage_errors, to_line
from coding_model_project.evaluation.plan import Sample
from coding_model_project.evaluation.rejudging.changes import Judgement, Rejudged, count
from coding_model_project.evaluation.rejudging.evaluations import Given
from coding_model_project.evaluation.rejudging.judging import Rules, Stored, judge_again
from coding_model_project.evaluation.results import Generated
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.readings import CountedBy
from coding_model_project.grading.rewards import RewardKind
from coding_model_project.runs.folder import RunFolder, plain_config
from coding_model_project.runs.rollouts import Rollout, read_rollouts
from coding_model_project.types import Problem

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
        style, kind = PromptStyle(coding["prompt"]), RewardKind(coding["reward"]["kind"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{run.config}: lacks the settings of prompts and rewards ({error}), as in runs of older "
            "versions, which cannot be rejudged"
        ) from error
    known = _problems(folder, problems, coding)
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
        if not given.force:
            _refuse_another_prompt(folder, row, problem)
        stored.append(_of_row(row, problem, len(stored)))
    if not stored:
        why = ", ".join(f"{n} {reason}" for reason, n in skipped.items())
        raise ConfigError(f"{folder}: no samples to judge{f' ({why})' if why else ''}")
    rules = Rules(
        sandbox=given.sandbox,
        style=style,
        stop_early=kind is RewardKind.sparse,
        rule=CountedBy.ours,
        stop_at_limit=False,
    )
    results, changes = judge_again(stored, rules, grader_before=grader_before)
    after = [Judgement.of_result(result) for result in results]
    pairs = zip(stored, after, strict=True)
    found = Rejudged(
        path=folder,
        grader_before=grader_before,
        grader_after=GRADER_VERSION,
        samples=len(stored),
        skipped=dict(skipped),
        changes=tuple(changes),
        datasets=count((one.sample.dataset, one.before, now) for one, now in pairs),
        notes=("the training run and its rollouts are unchanged",),
        written=not given.dry_run,
    )
    if not given.dry_run:
        with storage_errors(folder):
            (folder / CHANGES).write_bytes(b"".join(map(to_line, changes)))
            plain = json.loads(json.dumps(asdict(found), default=str))
            write_json(folder / SUMMARY, {k: v for k, v in plain.items() if k != "changes"})
    return found


def _problems(folder: Path, problems: Path | None, coding: Mapping[str, Any]) -> dict[str, Problem]:
    paths = [problems] if problems else [Path(path) for path in coding.get("problems") or ()]
    for path in paths:
        if not path.is_file():
            raise ConfigError(
                f"{folder}: its file of problems {path} is missing; pass --problems FILE"
            )
    return {one.id: one for path in paths for one in read_problems(path)}


def _refuse_another_prompt(folder: Path, row: Rollout, problem: Problem) -> None:
    """Raise `ConfigError` if the prompt does not contain the problem's statement."""
    statement, prompt = ("".join(text.split()) for text in (problem.statement, row.prompt))
    if statement not in prompt:
        raise ConfigError(
            f"{folder}: the prompt of {row.problem} (step {row.step}) lacks that problem's statement, so "
            "the problems have changed; pass the training run's file (--problems FILE), or add "
            "--force to use these problems"
        )


def _of_row(row: Rollout, problem: Problem, number: int) -> Stored:
    """Convert a rollout to a stored completion; from an episode of repairs, take the last answer."""
    try:
        attempts = row.extra.get("attempts") or ()
        completion = attempts[-1]["completion"] if attempts else row.completion
        before = Judgement.of_rollout(row)
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
