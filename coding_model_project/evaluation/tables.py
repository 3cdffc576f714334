"""Metrics as text tables for the console."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from coding_model_project.evaluation.comparison import Comparison, Cost, Pair, Score, Share
from coding_model_project.evaluation.intervals import ALPHA
from coding_model_project.evaluation.scores import AFTER, BEFORE, percent, rate_text

_WIDTH = 160


def plain_table(
    columns: Sequence[str], rows: Iterable[Sequence[RenderableType]] = (), *, left: int = 1
) -> Table:
    """Return a table without lines.

    Args:
        left: number of first columns that have texts, which wrap; the others have numbers.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        side = number < left
        table.add_column(
            column, justify="left" if side else "right", overflow="fold", no_wrap=not side
        )
    for row in rows:
        table.add_row(*row)
    return table


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def metrics_table(metrics: Mapping[str, Any], ks: Sequence[int]) -> str:
    """Return a table with a line per data set (rates with 95% intervals, counts, costs), then errors."""
    shown = sorted({ks[0], ks[len(ks) // 2], ks[-1]})
    counts = ("problems", "graded", "ungradable", "truncated", "tokens", "judge s")
    reasons = any(found.get("reasoning") for found in metrics.values())
    columns = ("data set", *(f"pass@{k} (95%)" for k in shown), "pass ratio (95%)", *counts)
    table = plain_table((*columns, "reasoning") if reasons else columns)
    for name, found in metrics.items():
        table.add_row(
            name,
            *(rate_text(found["pass@k"].get(str(k))) for k in shown),
            rate_text(found["pass_ratio"]),
            *(f"{found[count]:,}" for count in counts[:4]),
            f"{found['tokens']['total']:,.0f}",
            f"{found['judge_s']['total']:,.1f}",
            *((_reasoning(found.get("reasoning")),) if reasons else ()),
        )
    for name, found in metrics.items():
        for title, other in other_readings(found):
            rates = (rate_text(other["pass@k"].get(str(k))) for k in shown)
            ratio = other.get("pass_ratio")
            table.add_row(f"{name}, {title}", *rates, ratio and rate_text(ratio))
        for title, rate in instruction_rates(found):
            table.add_row(f"{name}, {title}", rate_text(rate))
        for part, of_part in _parts(found):
            table.add_row(f"{name}, {part}", *(rate_text(of_part.get(str(k))) for k in shown))
    errors = [
        f"{name}: {_errors(found['errors'])}" for name, found in metrics.items() if found["graded"]
    ]
    lines = [table_text(table), *errors]
    for name, found in metrics.items():
        if "readings" in found:
            differ = found["readings"]["differ"]
            total = sum(one["answers"] for one in differ.values())
            parts = (f"{one['answers']} {why} ({one['example']})" for why, one in differ.items())
            of = f": {', '.join(parts)}" if total else ""
            lines.append(f"{name}: {total} answers differ by the publisher's rule{of}")
    return "\n".join(lines)


def other_readings(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the titles of a data set's other readings, with their pass@k and pass ratio if known."""
    if base := found.get("base"):
        yield "its own tests only", {"pass@k": base}
    for rule, title in (("publisher", "publisher's rule"), ("ours", "this judge's rule")):
        rates = found.get("readings", {}).get(rule, found["pass@k"])
        if rates != found["pass@k"]:
            yield title, {"pass@k": rates}
    for name, rates in found.get("other_rules", {}).items():
        yield name, {"pass@k": rates}
    if loose := found.get("loose"):
        yield "loosely", loose


def instruction_rates(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield the titles of a data set's rates over instructions, with the rates."""
    titles = {
        "strict": "each instruction",
        "loose": "each instruction loosely",
        "strict_mean": "mean of prompts and instructions",
    }
    for name, rate in found.get("instructions", {}).items():
        yield titles[name], rate


def _parts(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the titles of a data set's parts, with their pass@k."""
    for level, rates in found.get("by_difficulty", {}).items():
        yield f"difficulty {level}", rates
    if cutoff := found.get("cutoff"):
        for side in (BEFORE, AFTER):
            if side in cutoff:
                yield f"{side} {cutoff['day']}", cutoff[side]


def months_table(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of pass@1 by month for each data set whose problems have dates."""
    for name, found in metrics.items():
        by_month = found.get("by_month", {})
        if not by_month:
            continue
        cutoff = found.get("cutoff", {}).get("day", "")
        table = plain_table(("published", "problems", "pass@1", ""))
        for month, rates in by_month.items():
            mark = f"cut-off {cutoff}" if cutoff.startswith(month) else ""
            rate = rates["1"]
            table.add_row(month, f"{rate['problems']:,}", rate_text(rate), mark)
        yield f"{name} by month:\n{table_text(table)}"


def budget_table(metrics: Mapping[str, Any]) -> str:
    """Return a table of pass rates by tokens and judge-seconds spent per problem."""
    table = plain_table(("data set", "tokens", "pass rate", "judge s", "pass rate"))
    for name, found in metrics.items():
        curves = found["budget"] or {"tokens": [], "judge_s": []}
        rows = max(len(curve) for curve in curves.values())
        for number in range(rows):
            cells = []
            for curve, digits in ((curves["tokens"], 0), (curves["judge_s"], 3)):
                if number < len(curve):
                    rate = rate_text(curve[number] | {"value": curve[number]["pass_rate"]})
                    cells += [f"{curve[number]['budget']:,.{digits}f}", rate]
                else:
                    cells += ["", ""]
            table.add_row(name, *cells)
    return "spent on a problem, until a sample is accepted:\n" + table_text(table)


def _reasoning(found: Mapping[str, float] | None) -> str:
    """Return reasoning tokens and their share of all tokens; "~" marks sums with estimates."""
    if found is None:
        return "–"
    about = "~" if found["estimated"] else ""
    return f"{about}{found['tokens']:,.0f} ({found['share']:.0%})"


def _errors(shares: Mapping[str, float]) -> str:
    """Return the nonzero shares, largest first."""
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {percent(share)}" for name, share in ordered if share) or "no errors"


def table_text(table: Table) -> str:
    """Render a table as plain text of a fixed width."""
    buffer = io.StringIO()
    Console(file=buffer, width=_WIDTH).print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


# ── tables of a comparison ─────────────────────────────────────────────────────────────────────────

N_SHOWN = 12


def comparison_tables(comparison: Comparison) -> RenderableType:
    """Return tables of differences, changed problems, error types and costs, with a legend."""
    parts: list[RenderableType] = [_pairs_table(comparison)]
    parts += [Text(line) for pair in comparison.pairs for line in _changed(pair)]
    parts += [_shifts_table(pair) for pair in comparison.pairs if pair.errors]
    parts.append(_costs(comparison.pairs))
    parts += [Text(f"{note}", style="dim") for note in [*_legend(comparison), *comparison.notes]]
    return Group(*parts)


def _pairs_table(comparison: Comparison) -> Table:
    numbers = ("n", f"pass@{comparison.k}", "difference", "p", "changed", "shows")
    table = plain_table(("data set", "side", *numbers), left=2)
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


def _changed(pair: Pair) -> Iterator[str]:
    for label, names in (("gained", pair.gained), ("lost", pair.lost)):
        some = f": {', '.join(names[:N_SHOWN])}" if names else ""
        more = f" and {len(names) - N_SHOWN} more (--json has all)" if len(names) > N_SHOWN else ""
        yield f"{pair.dataset}, {pair.second}: {len(names)} {label}{some}{more}"
    if pair.not_shared:
        yield f"{pair.dataset}: {pair.not_shared} problems excluded: not every run has graded them"


def _shifts_table(pair: Pair) -> Table:
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
