"""Tables of a comparison for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from coding_model_project.evaluation.comparison.paired import Comparison, Cost, Pair, Score, Share
from coding_model_project.evaluation.statistics.intervals import ALPHA
from coding_model_project.evaluation.statistics.scores import percent, rate_text
from coding_model_project.evaluation.tables import plain_table

N_SHOWN = 12


def tables(comparison: Comparison) -> RenderableType:
    """Return tables of differences, changed problems, error types and costs, with a legend."""
    parts: list[RenderableType] = [_differences(comparison)]
    parts += [Text(line) for pair in comparison.pairs for line in _changed(pair)]
    parts += [_errors(pair) for pair in comparison.pairs if pair.errors]
    parts.append(_costs(comparison.pairs))
    parts += [Text(f"{note}", style="dim") for note in [*_legend(comparison), *comparison.notes]]
    return Group(*parts)


def _differences(comparison: Comparison) -> Table:
    columns = (
        "data set",
        "side",
        "n",
        f"pass@{comparison.k}",
        "difference",
        "p",
        "changed",
        "shows",
    )
    table = plain_table(columns, left=2)
    for pair in comparison.pairs:
        style = "bold" if pair.corrected_p < ALPHA else ""
        table.add_row(
            pair.dataset,
            pair.first,
            f"{pair.n_problems}",
            _score(pair.first_score),
            Text(f"{pair.delta:+.1%}", style=style),
            f"{pair.p:.2g}",
            f"+{len(pair.gained)} −{len(pair.lost)}",
            f"±{pair.detectable:.1%}" if pair.detectable < 1 else "none",
        )
        table.add_row(
            "",
            pair.second,
            "",
            _score(pair.second_score),
            f"{pair.low:+.1%} to {pair.high:+.1%}",
            Text(f"{pair.corrected_p:.2g}", style=style),
            f"p {pair.mcnemar_p:.2g}",
        )
    return table


def _score(score: Score) -> str:
    spread = "" if score.std is None else f" ± {score.std:.1%}"
    return f"{percent(score.mean)}{spread}"


def _changed(pair: Pair) -> list[str]:
    lines = [
        f"{pair.dataset}, {pair.second}: {len(names)} {label}{': ' if names else ''}{_some(names)}"
        for label, names in (("gained", pair.gained), ("lost", pair.lost))
    ]
    if pair.not_shared:
        lines.append(
            f"{pair.dataset}: {pair.not_shared} problems excluded: not every run has graded them"
        )
    return lines


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - N_SHOWN} more (--json has all)" if len(names) > N_SHOWN else ""
    return ", ".join(names[:N_SHOWN]) + more


def _errors(pair: Pair) -> Table:
    """Return a table of error shares with 95% intervals."""
    table = plain_table((pair.dataset, pair.first, pair.second, "difference"))
    for shift in pair.errors:
        delta = shift.delta
        table.add_row(
            shift.error,
            _share(shift.first),
            _share(shift.second),
            f"{delta.mean:+.1%} ({100 * delta.low:+.1f} to {100 * delta.high:+.1f})",
        )
    return table


def _share(share: Share) -> str:
    return rate_text({"value": share.mean, "low": share.low, "high": share.high})


def _costs(pairs: Sequence[Pair]) -> Table:
    table = plain_table(
        ("cost", "side", "samples", "tokens", "each", "cut off", "ungraded", "judge s"), left=2
    )
    costs: dict[tuple[str, str], Cost] = {}
    for pair in pairs:
        costs[pair.dataset, pair.first] = pair.first_cost
        costs[pair.dataset, pair.second] = pair.second_cost
    for (dataset, side), cost in costs.items():
        table.add_row(
            dataset,
            side,
            f"{cost.samples:,.0f}",
            f"{cost.tokens:,.0f}",
            f"{cost.tokens / max(cost.samples, 1):.1f}",
            f"{cost.truncated:,.0f}",
            f"{cost.ungradable:,.0f}",
            f"{cost.judge_s:.1f}",
        )
    return table


def _legend(comparison: Comparison) -> list[str]:
    by_seed = any(pair.seeds_p is not None for pair in comparison.pairs)
    n = len(comparison.pairs)
    how, over = "paired permutation test over problems", ""
    if by_seed:
        over = ", over seeds and problems (± is the standard deviation over seeds)"
        how = f"the larger of Welch's t-test over seeds and the {how}"
    least = comparison.pairs[0].least_changes
    return [
        f"n: problems that all runs have. Below the difference: its 95% interval{over}. "
        f"p: {how}; below it: Holm-corrected for {n} comparison{'s' if n > 1 else ''}",
        "changed: problems gained and lost by majority of samples; below it: McNemar's exact test "
        f"(significant from {least} one-way changes). shows: smallest true difference found with 80% "
        "power",
    ]
