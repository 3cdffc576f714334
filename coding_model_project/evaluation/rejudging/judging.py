"""Rejudging of stored completions; those with changed verdicts are judged twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coding_model_project.concurrency import each
from coding_model_project.errors import SandboxError
from coding_model_project.evaluation.plan import Sample
from coding_model_project.evaluation.rejudging.changes import (
    Cause,
    Change,
    Judgement,
    cause_of,
)
from coding_model_project.evaluation.results import Generated, Result
from coding_model_project.evaluation.runner import judged
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.judge import open_judge
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.readings import CountedBy
from coding_model_project.progress import progress_bar
from coding_model_project.sandbox.sandbox_config import SandboxConfig

_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A stored completion and its previous verdict."""

    sample: Sample
    generated: Generated
    before: Judgement
    name: str
    """Name of the sample within its problem, as in its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The judge's settings, the same as in the first judging."""

    sandbox: SandboxConfig
    style: PromptStyle
    stop_early: bool
    rule: CountedBy
    stop_at_limit: bool


def judge_again(
    stored: Sequence[Stored], rules: Rules, *, grader_before: str
) -> tuple[list[Result], list[Change]]:
    """Judge completions with the current grader and find the changes.

    A program whose verdict changed is judged once more without a cache: if the two new verdicts
    differ, its outcome is unstable, and the grader is not the cause.

    Returns:
        The new results in order, and the changes.

    Raises:
        SandboxError: the sandbox does not start, or failed to run a program.
    """
    results = asyncio.run(_judge(stored, rules, "judged"))
    _refuse_outage(results)
    graders = grader_before, GRADER_VERSION
    changes: list[tuple[Stored, Judgement, Change]] = []
    for one, result in zip(stored, results, strict=True):
        after = Judgement.of_result(result)
        if one.before.outcome != after.outcome:
            change = Change(
                dataset=one.sample.dataset,
                problem=one.sample.problem.id,
                sample=one.name,
                before=one.before.outcome,
                after=after.outcome,
                cause=cause_of(one.before, after, graders=graders),
            )
            changes.append((one, after, change))
    doubtful = [
        entry for entry in changes if entry[2].cause in (Cause.limits, Cause.rules, Cause.sandbox)
    ]
    if doubtful:
        again = asyncio.run(_judge([one for one, _, _ in doubtful], rules, "again"))
        unstable = {
            one.sample.key
            for (one, after, _), result in zip(doubtful, again, strict=True)
            if Judgement.of_result(result).outcome != after.outcome
        }
        changes = [
            (one, after, replace(change, cause=Cause.unstable))
            if one.sample.key in unstable
            else (one, after, change)
            for one, after, change in changes
        ]
    return results, [change for _, _, change in changes]


def _refuse_outage(results: Sequence[Result]) -> None:
    """Raise `SandboxError` if a program could not be run, because that does not change its verdict."""
    down = [r.ungradable for r in results if (r.ungradable or "").startswith("SandboxError")]
    if down:
        raise SandboxError(
            f"{len(down)} of {len(results)} samples could not be judged ({down[0]}); nothing was "
            "written; run the same command again"
        )


async def _judge(stored: Sequence[Stored], rules: Rules, name: str) -> list[Result]:
    opened = open_judge(
        rules.sandbox,
        style=rules.style,
        stop_early=rules.stop_early,
        stop_at_limit=rules.stop_at_limit,
    )
    async with opened as judge:
        with progress_bar(name, len(stored)) as advance:

            async def one(work: Stored) -> Result:
                result = await judged(
                    work.sample,
                    work.generated,
                    judge.hidden,
                    stop_early=rules.stop_early,
                    rule=rules.rule,
                )
                advance()
                return result

            return await each(stored, one, at_once=_AT_ONCE)
