"""The results of the phases: a table, summary.json and report.html.

Each phase is compared with the previous one, paired by problem. The p-values are corrected for multiple
comparisons.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from coding_model_project.atomic import write_json
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.comparison import (
    Comparison,
    Pair,
    Score,
    Side,
    at_budgets,
    compare,
)
from coding_model_project.evaluation.intervals import ALPHA, holm
from coding_model_project.evaluation.results import METRICS, read_evaluation
from coding_model_project.evaluation.tables import plain_table
from coding_model_project.launch.steps import Done, Phase, console
from coding_model_project.reports import write_report
from coding_model_project.reports.page import comparison_charts, write_page
from coding_model_project.runs.folder import RunFolder

CLEAR = 0.01
"""The p-value below which a phase of `must_gain` has gained."""
EVALUATED = ("evaluation", "rounds")
"""Steps that measure a model; all other steps make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of some steps."""

    generated: int
    """Tokens sampled from a model."""
    trained: int
    """Tokens trained on, counted once per pass."""
    judge_s: float
    """Wall seconds that programs ran in the sandbox."""
    seconds: float
    """Wall seconds, including process start-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A phase in the table."""

    phase: str
    model: str
    score: Score
    errors: Mapping[str, float]
    """Shares of all samples, by kind."""
    gain: Pair | None
    """Gain over the previous phase; None for the first."""
    making: Cost
    measuring: Cost


def write(root: Path, phases: Sequence[Phase]) -> list[Row]:
    """Print the table, write summary.json and report.html, and return the table's rows."""
    rows = table_rows(phases)
    runs = [run for phase in phases for done in phase.steps if (run := _run(done)) is not None]
    write_report(runs, root / "runs.html")
    lines = closing_lines(rows)
    lines[-1:-1] = [rounds_line(phase.evaluation, phase.rounds) for phase in phases if phase.rounds]
    write_json(root / "summary.json", {"phases": [asdict(row) for row in rows]})
    results = RESULT_COLUMNS, [result_cells(row) for row in rows]
    costs = COST_COLUMNS, [cost_cells(row) for row in rows]
    pairs = tuple(row.gain for row in rows if row.gain is not None)
    write_page(
        root / "report.html",
        "Phases, each trained from the previous model",
        comparison_charts(Comparison(k=1, pairs=pairs, notes=())),
        template=Path(__file__).with_name("report.html"),
        tables=[results, costs],
        errors={row.phase: row.errors for row in rows},
        lines=lines,
    )
    for table in (results, costs):
        console.print(plain_table(*table))
    for line in lines:
        console.print(line, highlight=False)
    console.print(f"{root / 'report.html'}: the same with charts; runs.html: curves and samples")
    return rows


def without_gain(rows: Sequence[Row], names: Collection[str]) -> list[str]:
    """Return those of these phases that are not better than the previous phase with p < 0.01."""
    gains = {row.phase: row.gain for row in rows if row.phase in names and row.gain}
    return [name for name, one in gains.items() if not (one.delta > 0 and one.corrected_p < CLEAR)]


def table_rows(phases: Sequence[Phase]) -> list[Row]:
    """Return a row per phase, in order.

    Raises:
        ConfigError: there is only one phase, so nothing to compare.
    """
    sides = [Side(name=phase.name, seeds=(read_evaluation(phase.evaluation),)) for phase in phases]
    if len(sides) < 2:
        raise ConfigError("phases=[baseline]: recipes.baseline evaluates a model; add a phase")
    pairs = [compare([first, second]).pairs[0] for first, second in pairwise(sides)]
    corrected = holm([pair.p for pair in pairs])
    pairs = [replace(pair, corrected_p=p) for pair, p in zip(pairs, corrected, strict=True)]
    scores = [pairs[0].first_score, *(pair.second_score for pair in pairs)]
    return [
        Row(
            phase=phase.name,
            model=phase.model,
            score=score,
            errors=_errors(phase.evaluation),
            gain=gain,
            making=_cost([done for done in phase.steps if _verb(done) not in EVALUATED]),
            measuring=_cost([done for done in phase.steps if _verb(done) in EVALUATED]),
        )
        for phase, score, gain in zip(phases, scores, [None, *pairs], strict=True)
    ]


def _verb(done: Done) -> str:
    return done.name.partition("/")[2]


def _run(done: Done) -> RunFolder | None:
    """Return the step's folder if it is a run's, else None."""
    run = RunFolder(Path(done.folder))
    return run if run.run_json.exists() else None


def _errors(evaluation: Path) -> dict[str, float]:
    (metrics,) = json.loads((evaluation / METRICS).read_text()).values()
    return metrics["errors"]


def _cost(steps: Sequence[Done]) -> Cost:
    summaries: list[dict[str, Any]] = [
        json.loads(run.summary.read_text()) for done in steps if (run := _run(done)) is not None
    ]
    return Cost(
        generated=sum(summary["tokens"]["generated"] for summary in summaries),
        trained=sum(summary["tokens"]["trained"] for summary in summaries),
        judge_s=round(sum(summary["judge_s"] for summary in summaries), 1),
        seconds=round(sum(done.seconds for done in steps), 1),
    )


# ── for people ────────────────────────────────────────────────────────────────────────────────────

RESULT_COLUMNS = ("phase", "pass@1", "95% interval", "gain", "95% interval", "p")
COST_COLUMNS = ("phase", "tokens sampled", "tokens trained", "judge s", "minutes")


def result_cells(row: Row) -> tuple[str, ...]:
    """Return the cells of RESULT_COLUMNS for a phase."""
    gain = row.gain
    return (
        row.phase,
        f"{row.score.mean:.1%}",
        f"{row.score.low:.1%} – {row.score.high:.1%}",
        f"{gain.delta:+.1%}" if gain else "",
        f"{gain.low:+.1%} to {gain.high:+.1%}" if gain else "",
        f"{gain.corrected_p:.2g}" if gain else "",
    )


def cost_cells(row: Row) -> tuple[str, ...]:
    """Return the cells of COST_COLUMNS for a phase: the cost of making its model."""
    cost = row.making
    return (
        row.phase,
        f"{cost.generated:,}",
        f"{cost.trained:,}",
        f"{cost.judge_s:.0f}",
        f"{cost.seconds / 60:.1f}",
    )


def closing_lines(rows: Sequence[Row]) -> list[str]:
    """Return sentences that summarise the table and explain how to read it."""
    lines = [_verdict(row) for row in rows if row.gain is not None]
    n = rows[-1].gain.n_problems if rows[-1].gain else 0
    made, measured = (
        sum(getattr(row, part).seconds for row in rows) / 60 for part in ("making", "measuring")
    )
    return [
        *lines,
        f"{n} held-out problems. Gain is over the previous phase, paired by problem; p is from a "
        "permutation test, corrected by Holm. With one seed, this does not show the variation between "
        "seeds. Costs are those of making a phase's model.",
        f"{made:.1f} minutes of making models, and {measured:.1f} of measuring them",
    ]


def rounds_line(single: Path, rounds: Path) -> str:
    """Compare repair rounds with independent samples of the same token budget."""
    points = at_budgets(read_evaluation(single), read_evaluation(rounds))
    most = [point for point in points if point.kind == "tokens"][-1]
    return (
        f"With repairs, {most.second:.1%} of the problems are solved in {most.budget:.0f} tokens each; "
        f"with independent samples, {most.first:.1%} ({most.delta:+.1%}, {most.low:+.1%} to "
        f"{most.high:+.1%}, p = {most.p:.2g})"
    )


def _verdict(row: Row) -> str:
    gain = row.gain
    assert gain is not None
    if gain.corrected_p >= ALPHA:
        return (
            f"{row.phase}: no significant difference from {gain.first} ({gain.delta:+.1%}, "
            f"p = {gain.corrected_p:.2g}; {gain.detectable:.1%} would be detected with 80% power)"
        )
    what = "better" if gain.delta > 0 else "worse"
    return f"{row.phase}: {what} than {gain.first} by {abs(gain.delta):.1%}, p = {gain.corrected_p:.2g}"
