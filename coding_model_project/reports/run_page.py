"""The page about runs, with their curves, costs and samples."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_model_project.evaluation.results import METRICS, RUN_INFO
from coding_model_project.evaluation.results import read_metrics as read_metrics_of
from coding_model_project.evaluation.scores import percent, rate_text
from coding_model_project.evaluation.tables import instruction_rates, other_readings
from coding_model_project.reports.chart_lines import Metrics, RunTally, chart_lines, chart_stacks
from coding_model_project.reports.charts import Bar, Line, RunData, Samples, Written
from coding_model_project.reports.page import write_page
from coding_model_project.reports.run_charts import run_charts
from coding_model_project.reports.sample_selection import Choice, Index, SampleTable, choose
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.overview import duration, read_metrics, summarise
from coding_model_project.runs.rollouts import read_rollouts

BUDGET_BYTES = 16_000_000
"""Maximum bytes of samples' texts, before compression."""

_SCRIPTS = ("code.js", "timeline.js", "sample_view.js", "samples.js", "history.js")


def write_report(
    runs: Sequence[RunFolder],
    out: Path,
    *,
    budget_bytes: int = BUDGET_BYTES,
    arms: Sequence[Line] = (),
) -> Written:
    """Write a page about finished or running runs. Streams the rollouts twice.

    Args:
        runs: at least one run; duplicates are removed.
        out: path of the page, which is written atomically; its folder is created.
        budget_bytes: maximum bytes of samples' texts, before compression.
        arms: accepted shares of a study's arms, with bands over seeds.

    Raises:
        ConfigError: a folder is not a run's.
        OSError: the page cannot be written.
    """
    runs = list({run.path.resolve(): run for run in runs}.values())
    for run in runs:
        run.provenance()  # raises for other folders before any run is read
    tallies, choice = _read(runs, budget_bytes)
    about = [
        run_data(run, name, tally)
        for run, name, tally in zip(runs, run_names(runs), tallies, strict=True)
    ]
    names = [run.name for run in about]
    samples = _samples(runs, names, tallies, choice)
    splits = list(dict.fromkeys(split for tally in tallies for split in tally.splits))
    charts = run_charts(about, splits, arms)
    write_page(
        out,
        ", ".join(names),
        [*(chart for row in charts.rows for chart in row), charts.history],
        template=Path(__file__).with_name("run.html"),
        scripts=_SCRIPTS,
        data={"samples": samples.table},
        runs=about,
        samples=samples,
        rows=charts.rows,
        missing=charts.missing,
        history=charts.history,
    )
    return Written(
        path=out,
        page_bytes=out.stat().st_size,
        n_shown=samples.n_shown,
        n_total=samples.n_total,
    )


def _read(runs: Sequence[RunFolder], budget_bytes: int) -> tuple[list[RunTally], Choice]:
    tallies: list[RunTally] = []
    index = Index()
    for number, run in enumerate(runs):
        tally = RunTally()
        for row in read_rollouts(run.path):
            tally.add(row)
            index.add(number, row)
        tallies.append(tally)
    return tallies, choose(index, budget_bytes)


def run_data(run: RunFolder, name: str, tally: RunTally) -> RunData:
    """Read the data of a run, given the `Tally` of its samples."""
    metrics = read_metrics(run.metrics)
    scores = _scores(run)  # of an evaluation, which has no steps to draw lines over
    lines = {} if scores else chart_lines(tally, metrics, read_metrics(run.evaluations))
    return RunData(
        name=name,
        state=str(run.state),
        facts=run_facts(run, tally, metrics, lines),
        n_rollouts=tally.n,
        lines=lines,
        stacks={} if scores else chart_stacks(tally, metrics),
        scores=scores,
    )


def _scores(run: RunFolder) -> dict[str, dict[str, list[Bar]]]:
    """Return a finished evaluation's rates by chart and data set."""
    if not (run.path / METRICS).exists():
        return {}
    found: dict[str, dict[str, list[Bar]]] = {"pass_at_k": {}, "months": {}}
    for name, metrics in read_metrics_of(run.path).items():
        rates = {f"pass@{k}": rate for k, rate in metrics["pass@k"].items()}
        found["pass_at_k"][name] = _bars(rates)
        cutoff = metrics.get("cutoff", {}).get("day", "")
        if by_month := metrics.get("by_month"):
            months = {
                f"{month}, cut-off" if cutoff.startswith(month) else month: rates["1"]
                for month, rates in by_month.items()
            }
            found["months"][name] = _bars(months)
    return found


def _bars(rates: Mapping[str, Mapping[str, float]]) -> list[Bar]:
    return [
        Bar(label=label, value=rate["value"], low=rate["low"], high=rate["high"])
        for label, rate in rates.items()
    ]


def _samples(
    runs: Sequence[RunFolder], names: Sequence[str], tallies: Sequence[RunTally], choice: Choice
) -> Samples:
    table = SampleTable()
    start = 0
    for number, (run, tally) in enumerate(zip(runs, tallies, strict=True)):
        # A running run may have more rows by now; only the first `tally.n` were counted.
        flags = choice.shown[start : start + tally.n]
        start += tally.n
        for row, is_shown in zip(read_rollouts(run.path), flags, strict=False):
            if is_shown:
                table.add(number, row)
    return table.finish(names, tallies, choice)


# ── facts ─────────────────────────────────────────────────────────────────────────────────────────


def run_facts(
    run: RunFolder, tally: RunTally, metrics: Metrics, lines: Mapping[str, Sequence[Line]]
) -> list[tuple[str, str]]:
    """Return label and text of each known fact, in the order of the page.

    Args:
        lines: the run's lines by chart; none for an evaluation.

    Raises:
        ConfigError: the folder is not a run's.
    """
    origin, summary = run.provenance(), summarise(run)
    judge_s, began = summary["judge_s"] or tally.judge_s, time.gmtime(origin.get("created") or 0)
    steps = [*metrics, *(step for split in tally.splits.values() for step in split)]
    git = origin.get("git") or {}
    commit = f"{str(git.get('commit', ''))[:12]} on {git.get('branch', '?')}" if git else ""
    changed = " with changes, see patches/" if git.get("dirty") else ""
    facts = {
        "recipe": str(origin.get("recipe") or ""),
        "state": _state(run),
        **_evaluated(run),
        "accepted": _accepted(lines),
        "step": str(max(steps)) if lines and steps else "",
        "started": time.strftime("%Y-%m-%d %H:%M UTC", began) if origin.get("created") else "",
        "duration": duration(summary["seconds"]) if summary["seconds"] else "",
        "tokens": _tokens(tally, summary["tokens"]),
        "judge": f"{judge_s:,.1f} s of running programs" if judge_s else "",
        "seeds": _seeds(origin.get("seeds") or {}),
        "commit": f"{commit}{changed}",
        "host": _host(origin),
        "folder": str(run.path),
        "command": shlex.join(origin.get("command") or []),
    }
    return [(label, text) for label, text in facts.items() if text]


def _evaluated(run: RunFolder) -> dict[str, str]:
    """Return an evaluation's model, protocol, and each data set's rates with intervals."""
    if not (run.path / METRICS).exists():
        return {}
    info = json.loads((run.path / RUN_INFO).read_text())
    protocol = info["protocol"]
    facts = {"model": info["model"], "protocol": f"{protocol['name']} ({protocol['hash']})"}
    for name, found in read_metrics_of(run.path).items():
        rates = [f"pass@{k} {rate_text(rate)}" for k, rate in found["pass@k"].items()]
        rates += [f"pass ratio {rate_text(found['pass_ratio'])}"] if found["pass_ratio"] else []
        rates += [
            f"pass@{k} {title} {rate_text(rate)}"
            for title, other in other_readings(found)
            for k, rate in other["pass@k"].items()
        ]
        rates += [f"{title} {rate_text(rate)}" for title, rate in instruction_rates(found)]
        errors = [f"{error} {percent(share)}" for error, share in found["errors"].items() if share]
        lost, samples = found["ungradable"], found["samples"]
        left_out = f"{lost} of {samples} samples could not be judged and count nowhere"
        judged = left_out if lost else f"all {samples} samples were judged"
        shares = f"errors: {', '.join(errors) or 'none'}"
        facts[name] = f"{', '.join(rates)} (95% intervals); {shares}; {judged}"
    return facts


def _accepted(lines: Mapping[str, Sequence[Line]]) -> str:
    """Return the accepted shares at the first and the last step, of training and validation."""
    found = []
    for title, chart in (("training", "accepted"), ("validation", "validation")):
        if len(drawn := lines.get(chart, ())) == 1 and len(steps := drawn[0].steps) > 1:
            first, last = percent(drawn[0].values[0]), percent(drawn[0].values[-1])
            found.append(f"{title} {first} at step {steps[0]}, {last} at step {steps[-1]}")
    return "; ".join(found)


def run_names(runs: Sequence[RunFolder]) -> list[str]:
    """Return a short name per run: the end of its path, as long as needed to be unique.

    Steps of a pipeline are PHASE/STEP, without the hash of their inputs.
    """
    paths = [run.path.resolve() for run in runs]
    steps = [found and f"{found[1]}/{found[2]}" for found in map(_STEP.search, map(str, paths))]
    if all(steps) and len(set(steps)) == len(steps):
        return [str(step) for step in steps]
    n = 1
    while n < max(len(path.parts) for path in paths):
        names = ["/".join(path.parts[-n:]) for path in paths]
        if len(set(names)) == len(names):
            return names
        n += 1
    return [str(path) for path in paths]


_STEP = re.compile(r"([^/]+)/([^/]+)-[0-9a-f]{8}$")


def _state(run: RunFolder) -> str:
    attempts = run.attempts()
    number = f", attempt {len(attempts)}" if len(attempts) > 1 else ""
    error = attempts[-1].error if attempts else None
    return f"{run.state}{number}" + (f": {error}" if error else "")


def _tokens(tally: RunTally, tokens: Mapping[str, int]) -> str:
    if tokens["generated"]:
        return f"{tokens['generated']:,} generated in training"
    if tally.tokens:
        return f"{tally.tokens:,} in judged samples"
    return f"{tokens['trained']:,} trained on" if tokens["trained"] else ""


def _seeds(seeds: Mapping[str, int]) -> str:
    by_value: dict[int, list[str]] = {}
    for key, value in seeds.items():
        by_value.setdefault(value, []).append(key)
    return "; ".join(f"{value} ({', '.join(keys)})" for value, keys in by_value.items())


def _host(origin: Mapping[str, Any]) -> str:
    hardware = origin.get("hardware") or {}
    cores, memory = hardware.get("cores"), hardware.get("memory_gb")
    parts = [
        str(origin.get("host") or ""),
        f"{cores} cores" if cores else "",
        f"{memory:g} GB" if memory else "",
        *hardware.get("gpus", []),
    ]
    return ", ".join(part for part in parts if part)
