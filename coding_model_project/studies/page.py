"""A study's page, made anew from its definition and its folders. It concludes no more than they show."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.comparison import Pair, Side, compare, unlike
from coding_model_project.evaluation.comparison.compare import Comparison, Score
from coding_model_project.evaluation.results import read_evaluation
from coding_model_project.evaluation.significance import ALPHA
from coding_model_project.runs.folder import RunFolder, write_text
from coding_model_project.runs.metrics import read_metrics, series
from coding_model_project.runs.report import write_report
from coding_model_project.runs.summary import summarise
from coding_model_project.studies.definition import Stage, Study
from coding_model_project.studies.running import Member, finished, keep_definition, members

LEAST_SEEDS = 3
"""On each side, for a claim about a method (experiment_design/final_experiment_design.md)."""

_CURVE = "judge/accepted"
_REPORT = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Of one member, all trainings and the evaluation; `seconds` is wall time."""

    generated: int
    trained: int
    judge_s: float
    seconds: float


def write_page(study: Study, out: Path) -> Path:
    """Write the page beside the definitions, and a report of all trainings into `out`.

    Raises:
        ConfigError: the definition is not what the folders were made by, or two evaluations were not
            made alike.
    """
    every = list(members(study, out))
    if out.exists():
        keep_definition(study, out)
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
    yield _table(("arm", "training"), rows)


def _stage(stage: Stage) -> str:
    return f"{stage.recipe}: " + (" ".join(f"`{one}`" for one in stage.overrides) or "as it is")


def _committed(study: Study, every: Sequence[Member]) -> str:
    """Whether the definition was in the repository before the first run began."""
    began = [
        attempt.started
        for member in every
        for folder in member.trainings
        for attempt in RunFolder(folder).attempts()
    ]
    said = _git(study.path, "log", "-1", "--format=%h %ct")
    if not said or _git(study.path, "status", "--porcelain"):
        return "No: the definition as it is has not been committed."
    commit, at = said.split()
    if not began:
        return f"Committed as {commit}; nothing has been run yet."
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(began)))
    order = "before" if int(at) <= min(began) else "**after**"
    return f"Committed as {commit}, {order} the first run began ({when})."


def _git(path: Path, *arguments: str) -> str:
    command = ["git", *arguments, "--", path.name]
    try:
        done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _compared(study: Study, done: Sequence[Member]) -> Comparison | None:
    """None until two arms have an evaluated member."""
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
        yield f"{dataset}, {pairs[0].n_problems} problems:"
        scores = {pairs[0].first: pairs[0].first_score}
        scores |= {pair.second: pair.second_score for pair in pairs}
        yield _table(
            ("arm", "seeds", f"pass@{study.k}, mean ± std", "95% interval", "by seed"),
            [_score_row(arm, score) for arm, score in scores.items()],
        )
        yield _table(
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
        "Intervals are over seeds and problems (hierarchical bootstrap), differences paired by "
        "problem; p is the larger one of the permutation test over problems and, with several seeds, "
        "Welch's t-test over seeds; Holm's correction is over all differences of the study."
    )
    yield "**What follows.** " + " ".join(conclusions(study, n_done, len(every), comparison))


def _score_row(arm: str, score: Score) -> tuple[str, ...]:
    spread = "" if score.std is None else f" ± {score.std:.1%}"
    return (
        f"`{arm}`",
        str(len(score.by_seed)),
        f"{score.mean:.1%}{spread}",
        f"{score.low:.1%} to {score.high:.1%}",
        ", ".join(f"{one:.1%}" for one in score.by_seed),
    )


def conclusions(study: Study, n_done: int, n_members: int, comparison: Comparison) -> Iterator[str]:
    """Sentences no stronger than the intervals."""
    if n_done < n_members:
        yield f"{n_done} of {n_members} members have finished: this is no result yet."
    for pair in comparison.pairs:
        yield _conclusion(pair)
    n_seeds = min(
        len(score.by_seed)
        for pair in comparison.pairs
        for score in (pair.first_score, pair.second_score)
    )
    if n_seeds < LEAST_SEEDS:
        yield (
            f"Descriptive: with {n_seeds} seed{'s' if n_seeds > 1 else ''} a side this is said of these "
            f"trainings and claimed of no others, which takes {LEAST_SEEDS}."
        )


def _conclusion(pair: Pair) -> str:
    on = f"on {pair.dataset}"
    interval = f"{pair.delta:+.1%}, 95% interval {pair.low:+.1%} to {pair.high:+.1%}"
    clear = pair.low > 0 or pair.high < 0
    if clear and pair.corrected_p < ALPHA:
        how = "more" if pair.delta > 0 else "fewer"
        return f"`{pair.second}` solves {how} than `{pair.first}` {on} ({interval})."
    return (
        f"No difference between `{pair.second}` and `{pair.first}` is shown {on} ({interval}, p = "
        f"{pair.corrected_p:.2g}); one smaller than {pair.detectable:.1%} would mostly be missed."
    )


def _costs(study: Study, done: Sequence[Member]) -> Iterator[str]:
    if not done:
        return
    yield "## Cost"
    rows = []
    for arm in study.arms:
        costs = [_cost(member) for member in done if member.arm == arm]
        if costs:
            rows.append(
                (
                    f"`{arm}`",
                    str(len(costs)),
                    f"{fmean(cost.generated for cost in costs):,.0f}",
                    f"{fmean(cost.trained for cost in costs):,.0f}",
                    f"{fmean(cost.judge_s for cost in costs):,.0f}",
                    f"{fmean(cost.seconds for cost in costs):,.0f}",
                )
            )
    yield "Means per member, its evaluation included:"
    columns = ("arm", "members", "tokens generated", "tokens trained on", "judge s", "wall s")
    yield _table(columns, rows)


def _cost(member: Member) -> _Cost:
    found = [summarise(RunFolder(folder)) for folder in member.trainings]
    evaluation = read_evaluation(member.evaluation)
    return _Cost(
        generated=sum(one["tokens"]["generated"] for one in found)
        + sum(result.tokens for result in evaluation.results),
        trained=sum(one["tokens"]["trained"] for one in found),
        judge_s=sum(one["judge_s"] for one in found)
        + sum(result.judge_s for result in evaluation.results),
        seconds=sum(one["seconds"] for one in found)
        + summarise(RunFolder(member.evaluation))["seconds"],
    )


def _curves(study: Study, every: Sequence[Member], out: Path) -> Iterator[str]:
    """The last stage's accepted share by step, a column per member; the report overlays the curves."""
    curves = {
        f"`{member.arm}` {member.seed}": dict(
            series(read_metrics(RunFolder(member.trainings[-1]).metrics), _CURVE)
        )
        for member in every
    }
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return
    yield "## Curves"
    yield "Accepted samples by training step, arm and seed:"
    steps = sorted({step for curve in curves.values() for step in curve})
    rows = [(str(step), *(_cell(curve, step) for curve in curves.values())) for step in steps]
    yield _table(("step", *curves), rows)
    runs = [RunFolder(folder) for m in every for folder in m.trainings if finished(folder)]
    if runs:
        write_report(runs, out / _REPORT)
        yield f"All curves over each other, and samples: `{out / _REPORT}` (made with this page)."


def _cell(curve: Mapping[int, float], step: int) -> str:
    return f"{curve[step]:.1%}" if step in curve else "–"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
