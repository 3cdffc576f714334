"""A study's page, regenerated from its definition and folders."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from statistics import fmean

from coding_model_project.atomic import write_text
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.comparison import (
    Comparison,
    Pair,
    Score,
    Side,
    compare,
    unlike,
)
from coding_model_project.evaluation.intervals import ALPHA
from coding_model_project.evaluation.results import read_evaluation
from coding_model_project.evaluation.tables import markdown_table
from coding_model_project.launch.pipeline.outcome import Cost
from coding_model_project.reports import write_report
from coding_model_project.reports.charts import Line
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.overview import read_metrics, series, sparkline, summarise
from coding_model_project.runs.provenance import git
from coding_model_project.studies.study import (
    Member,
    Stage,
    Study,
    finished,
    keep_definition,
    members,
)

_CURVE = "judge/accepted"
_WHAT = "Accepted samples by training step"
_REPORT = "report.html"
_N_MARKS = 40
"""Maximum marks of a curve in one line of text."""
_COST = "## Cost"
"""A heading on pages that show runs."""


def write_page(study: Study, out: Path) -> Path:
    """Write the page beside the definitions, and a report of all training runs into `out`.

    Raises:
        ConfigError: the definition has changed since the runs began, two evaluations have different
            protocols, or the page shows runs that are missing in `out`.
    """
    every = list(members(study, out))
    if out.exists():
        keep_definition(study, out)
    elif study.page.exists() and _COST in study.page.read_text():
        raise ConfigError(
            f"{out}: has no runs of this study, but {study.page} shows some, which would be lost; pass "
            "their folder with --out"
        )
    done = [member for member in every if member.done]
    comparison = _compared(study, done)
    parts = [
        f"# Study: {study.name.replace('_', ' ')}",
        f"<!-- Generated: python -m coding_model_project study page {study.path} -->",
        *_definition(study, out, every),
        *_result(study, every, comparison),
        *_costs(study, done),
        *_curves(study, every, out),
    ]
    write_text(study.page, "\n\n".join(parts) + "\n")
    return study.page


def _definition(study: Study, out: Path, every: Sequence[Member]) -> Iterator[str]:
    yield f"- **Question.** {study.question}\n- **Expected.** {study.expected}\n" + (
        f"- **Command.** `python -m coding_model_project study run {study.path}`\n"
        f"- **Metric.** pass@{study.k} of held-out problems after training, arm by arm against "
        f"`{study.first}`; evaluated by `{' '.join(study.evaluation)}`.\n"
        f"- **Stop rule.** {study.stop}\n"
        f"- **Seeds.** {', '.join(map(str, study.seeds))}, of data order, sampling and training.\n"
        f"- **Written down first.** {_committed(study, every)}"
    )
    rows = [(f"`{arm}`", "; then ".join(map(_stage, stages))) for arm, stages in study.arms.items()]
    yield markdown_table(("arm", "training"), rows)


def _stage(stage: Stage) -> str:
    return f"{stage.recipe}: " + (" ".join(f"`{one}`" for one in stage.overrides) or "as it is")


def _committed(study: Study, every: Sequence[Member]) -> str:
    """Return whether the definition was committed before the first run began."""
    began = [
        attempt.started
        for member in every
        for folder in member.trainings
        for attempt in RunFolder(folder).attempts()
    ]
    folder, name = study.path.parent, study.path.name
    last_commit = git("log", "-1", "--format=%h %ct", "--", name, cwd=folder).strip()
    if not last_commit or git("status", "--porcelain", "--", name, cwd=folder):
        return "No: the definition as it is has not been committed."
    commit, at = last_commit.split()
    if not began:
        return f"Committed as {commit}; nothing has been run yet."
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(began)))
    order = "before" if int(at) <= min(began) else "**after**"
    return f"Committed as {commit}, {order} the first run began ({when})."


def _compared(study: Study, done: Sequence[Member]) -> Comparison | None:
    """Compare the arms, or return None until two arms have an evaluated member."""
    sides = [
        Side(name=arm, seeds=tuple(read_evaluation(m.evaluation) for m in done if m.arm == arm))
        for arm in study.arms
    ]
    sides = [side for side in sides if side.seeds]
    if len(sides) < 2 or sides[0].name != study.first:
        return None
    if how := unlike(sides):
        raise ConfigError(how)
    return compare(sides, k=study.k)


def _result(study: Study, every: Sequence[Member], comparison: Comparison | None) -> Iterator[str]:
    yield "## Result"
    n_done = sum(member.done for member in every)
    if comparison is None:
        yield f"Not run to its end: {n_done} of {len(every)} members. Nothing is concluded."
        return
    for dataset in dict.fromkeys(pair.dataset for pair in comparison.pairs):
        pairs = [pair for pair in comparison.pairs if pair.dataset == dataset]
        yield f"{dataset}, {pairs[0].n_problems} problems{descriptive(comparison)}:"
        scores = {pairs[0].first: pairs[0].first_score}
        scores |= {pair.second: pair.second_score for pair in pairs}
        yield markdown_table(
            ("arm", "seeds", f"pass@{study.k}, mean ± std", "95% interval", "by seed"),
            [_score_row(arm, score) for arm, score in scores.items()],
        )
        yield markdown_table(
            ("against", "difference", "95% interval", "p", "p, Holm", "would show", "changed"),
            [
                (
                    f"`{pair.second}` − `{pair.first}`",
                    f"{pair.delta:+.1%}",
                    f"{pair.low:+.1%} to {pair.high:+.1%}",
                    f"{pair.p:.2g}",
                    f"{pair.corrected_p:.2g}",
                    f"±{pair.detectable:.1%}",
                    f"+{len(pair.gained)} −{len(pair.lost)}",
                )
                for pair in pairs
            ],
        )
    yield (
        "Intervals are over seeds and problems (of differences, paired by problem: hierarchical "
        "bootstrap); p is the larger one of the permutation test over problems and, with several seeds, "
        "Welch's t-test over seeds; Holm's correction is over all differences of the study. A difference "
        "smaller than what it would show is mostly missed; changed are problems that most samples of one "
        "arm solve and of the other do not."
    )
    yield "**What follows.** " + " ".join(conclusions(n_done, len(every), comparison))


def _score_row(arm: str, score: Score) -> tuple[str, ...]:
    spread = "" if score.std is None else f" ± {score.std:.1%}"
    return (
        f"`{arm}`",
        str(len(score.by_seed)),
        f"{score.mean:.1%}{spread}",
        f"{score.low:.1%} to {score.high:.1%}",
        ", ".join(f"{one:.1%}" for one in score.by_seed),
    )


def _costs(study: Study, done: Sequence[Member]) -> Iterator[str]:
    if not done:
        return
    yield _COST
    rows = []
    for arm in study.arms:
        if costs := [_cost(member) for member in done if member.arm == arm]:
            means = map(fmean, zip(*map(astuple, costs), strict=True))
            rows.append((f"`{arm}`", str(len(costs)), *(f"{mean:,.0f}" for mean in means)))
    yield "Means per member, its evaluation included:"
    columns = ("arm", "members", "tokens generated", "tokens trained on", "judge s", "wall s")
    yield markdown_table(columns, rows)


def _cost(member: Member) -> Cost:
    found = [summarise(RunFolder(folder)) for folder in member.trainings]
    evaluation = read_evaluation(member.evaluation)
    return Cost(
        generated=sum(one["tokens"]["generated"] for one in found)
        + sum(result.tokens for result in evaluation.results),
        trained=sum(one["tokens"]["trained"] for one in found),
        judge_s=sum(one["judge_s"] for one in found)
        + sum(result.judge_s for result in evaluation.results),
        seconds=sum(one["seconds"] for one in found)
        + summarise(RunFolder(member.evaluation))["seconds"],
    )


def _curves(study: Study, every: Sequence[Member], out: Path) -> Iterator[str]:
    """Yield the last stage's accepted share by step: sparklines, and a link to the report."""
    found = {
        member: dict(series(read_metrics(RunFolder(member.trainings[-1]).metrics), _CURVE))
        for member in every
    }
    found = {member: curve for member, curve in found.items() if curve}
    if not found:
        return
    by_arm = {arm: [curve for m, curve in found.items() if m.arm == arm] for arm in study.arms}
    lines = [arm_line(arm, curves) for arm, curves in by_arm.items() if curves]
    arms = [line for line in lines if line.steps]
    yield "## Curves"
    yield f"{_WHAT}, by arm; each mark is drawn from the curve's own least to its own greatest value."
    yield markdown_table(("arm", "curve", "first → last step"), [curve_row(arm) for arm in arms])
    runs = [RunFolder(folder) for m in every for folder in m.trainings if finished(folder)]
    if runs:
        write_report(runs, out / _REPORT, arms=arms)
        yield (
            f"`{out / _REPORT}`, made with this page: these curves over each other with the range of "
            "their seeds, all other metrics, and samples."
        )


def curve_row(arm: Line) -> tuple[str, ...]:
    """Return a row with a sketch of at most `_N_MARKS` marks, each a mean of consecutive steps."""
    values, width = arm.values, math.ceil(len(arm.values) / _N_MARKS)
    marks = [fmean(values[first : first + width]) for first in range(0, len(values), width)]
    return arm.label, sparkline(marks), f"{values[0]:.1%} → {values[-1]:.1%}"


# ── conclusions ───────────────────────────────────────────────────────────────────────────────────

LEAST_SEEDS = 3
"""Minimum seeds per side for a claim about a method (experiment_design/final_experiment_design.md)."""


def conclusions(n_done: int, n_members: int, comparison: Comparison) -> Iterator[str]:
    """Yield general caveats, then a conclusion per difference."""
    if n_done < n_members:
        yield f"{n_done} of {n_members} members have finished: this is no result yet."
    if descriptive(comparison):
        yield (
            f"Descriptive: this is said of these trainings and claimed of no others, which takes "
            f"{LEAST_SEEDS} seeds a side."
        )
    for pair in comparison.pairs:
        yield _conclusion(pair)


def descriptive(comparison: Comparison) -> str:
    """Return a "descriptive" label, or an empty text if there are enough seeds for a claim."""
    n_seeds = min(
        len(score.by_seed)
        for pair in comparison.pairs
        for score in (pair.first_score, pair.second_score)
    )
    if n_seeds >= LEAST_SEEDS:
        return ""
    return f" (descriptive: {n_seeds} seed{'s' if n_seeds > 1 else ''} a side)"


def _conclusion(pair: Pair) -> str:
    first, second, on = f"`{pair.first}`", f"`{pair.second}`", f"on {pair.dataset}"
    interval = f"{pair.delta:+.1%}, 95% interval {pair.low:+.1%} to {pair.high:+.1%}"
    how = "more" if pair.delta > 0 else "fewer"
    is_clear = pair.low > 0 or pair.high < 0
    is_significant = pair.corrected_p < ALPHA
    tested = f"p = {pair.corrected_p:.2g}"
    if is_clear and is_significant:
        return f"{second} solves {how} than {first} {on} ({interval}, {tested})."
    if is_clear:
        return (
            f"It stays open whether {second} solves {how} than {first} {on}: the interval leaves 0 out "
            f"({interval}), but the tests do not rule chance out ({tested})."
        )
    return (
        f"No difference between {second} and {first} is shown {on} ({interval}, {tested}); one smaller "
        f"than {pair.detectable:.1%} would mostly be missed."
    )


# ── curves ────────────────────────────────────────────────────────────────────────────────────────

Curve = Mapping[int, float]
"""Shares, 0 to 1, by step."""


def arm_line(arm: str, curves: Sequence[Curve]) -> Line:
    """Return the mean over an arm's seeds, with a band from the least to the greatest seed.

    The line has only steps that all seeds have, so that a missing seed does not bend it.
    """
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    by_step = [[curve[step] for curve in curves] for step in steps]
    several = len(curves) > 1
    return Line(
        label=f"{arm}, mean of {len(curves)} seeds" if several else f"{arm}, one seed",
        steps=steps,
        values=[fmean(values) for values in by_step],
        low=[min(values) for values in by_step] if several else None,
        high=[max(values) for values in by_step] if several else None,
    )
