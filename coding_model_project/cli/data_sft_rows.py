"""The `data sft-rows` command: write demonstrations from accepted programs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coding_model_project.cli.common import (
    DataDir,
    Datasets,
    JournalFile,
    MinTier,
    OnCluster,
    PerProblem,
    ProblemsFile,
    RayAddress,
    Seed,
    Split,
    Tokenizer,
    Workers,
    given_problems,
)
from coding_model_project.cli.preflight_run import PreflightOptions, run_preflight
from coding_model_project.data.training.sft_rows import Choose
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.isolation.confine import Tier
from coding_model_project.progress import progress_bar

if TYPE_CHECKING:
    from coding_model_project.data.training.sft_rows import Candidate, Counts
    from coding_model_project.evaluation.judged import JudgedSamples
    from coding_model_project.types import Problem

GOLD = ("missing", "only")


def sft_rows(
    out: Annotated[
        Path, typer.Option(help="Write the rows to this .parquet file, and counts beside it.")
    ],
    evaluations: Annotated[
        list[Path] | None,
        typer.Argument(metavar="EVAL_FOLDER...", help="Evaluations of training problems."),
    ] = None,
    problems: ProblemsFile = None,
    dataset: Datasets = None,
    split: Split = None,
    data_dir: DataDir = None,
    n: PerProblem = 4,
    choose: Annotated[
        Choose, typer.Option(help="Choose the shortest, diverse or random programs.")
    ] = Choose.shortest,
    gold: Annotated[
        str | None,
        typer.Option(
            help="Use gold solutions for problems without an accepted program (missing), or exclusively "
            "(only). They are run first, and failing ones are dropped."
        ),
    ] = None,
    prompt: Annotated[
        PromptStyle | None,
        typer.Option(help="Write fenced or bare prompts. Default: like the evaluations'."),
    ] = None,
    tokenizer: Tokenizer = None,
    seed: Seed = 0,
    workers: Workers = None,
    min_tier: MinTier = Tier.seccomp,
    journal: JournalFile = None,
    cluster: OnCluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Write SFT rows from programs that evaluations accepted, at most n distinct ones per problem.

    Sample training problems with `python -m recipes.baseline coding.evaluation.protocol=sampled`.
    """
    from coding_model_project.data.training.rows import sft_row, write_rows
    from coding_model_project.data.training.sft_rows import choose as chosen_of
    from coding_model_project.evaluation.judged import read_judged

    _check(evaluations or [], out, gold)
    known = given_problems(problems, dataset, data_dir, split=split)
    read = [read_judged(path, known) for path in evaluations or []]
    style = _style(prompt, read)
    targets = list({name: one for each in read for name, one in each.problems.items()}.values())
    candidates = [] if gold == "only" else [c for each in read for c in each.accepted_programs()]
    rejected: tuple[str, ...] = ()
    if gold is not None:
        targets = targets or _training(known.values())
        solved = {candidate.problem for candidate in candidates}
        unsolved = [one for one in targets if one.gold and one.id not in solved]
        checking = PreflightOptions(
            workers=workers,
            min_tier=min_tier,
            on_cluster=cluster is not None,
            address=ray_address,
            journal=journal,
        )
        more, rejected = _gold(unsolved, checking)
        candidates += more
    kept, counts = chosen_of(candidates, targets, n=n, how=choose, seed=seed)
    if not kept:
        raise ConfigError(
            f"no SFT rows: none of {len(targets)} problems has an accepted sample"
            + ("" if gold else "; draw more samples, or use gold solutions with --gold missing")
        )
    rows = [sft_row(known[one.problem], one.code, style) for one in kept]
    write_rows(out, rows, trains=True)
    report = _report(read, counts, rejected, kept, rows, tokenizer)
    source = str(problems or ", ".join(dataset or ()))
    settings = {"per_problem": n, "choose": choose, "gold": gold, "prompt": style, "seed": seed}
    _write(
        out.with_suffix(".json"),
        {"settings": settings | {"problems": source}, **report},
    )
    _say(report)
    print(f"{out}: {len(rows)} rows")


def _check(evaluations: Sequence[Path], out: Path, gold: str | None) -> None:
    if out.suffix != ".parquet":
        raise ConfigError(f"--out={out}: expected a .parquet file")
    if gold is not None and gold not in GOLD:
        raise ConfigError(f"--gold={gold}: expected one of {', '.join(GOLD)}")
    if not evaluations and gold != "only":
        raise ConfigError("data sft-rows: no programs; pass evaluations, or --gold only")


def _style(given: PromptStyle | None, read: Sequence[JudgedSamples]) -> PromptStyle:
    """Return the given prompt style, or by default the evaluations'."""
    from coding_model_project.evaluation.judged import one_style

    if given is not None:
        return given
    if not read:
        raise ConfigError("--prompt: required without evaluations; pass fenced or bare")
    return one_style(read)


def _training(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems that have gold solutions and may be used for training."""
    from coding_model_project.data.governance import is_held_out, split_word
    from coding_model_project.data.training.rows import source
    from coding_model_project.evaluation.judged import held_out_line

    gold = [one for one in problems if one.gold]
    found = [one for one in gold if not is_held_out(source(one), one.split)]
    kept = {one.id for one in found}
    held_out = Counter(split_word(one.split) for one in gold if one.id not in kept)
    if not found:
        raise ConfigError(
            "--gold: none of these problems has a gold solution and may be used for training"
        )
    if line := held_out_line("left out", "gold solutions", held_out):
        print(line)
    return found


def _gold(
    problems: Sequence[Problem], checking: PreflightOptions
) -> tuple[list[Candidate], tuple[str, ...]]:
    """Return solutions that pass all tests, and ids of problems with a solution that fails."""
    from dataclasses import replace

    from coding_model_project.data.training.sft_rows import gold_candidates

    if not problems:
        return [], ()
    judged = [replace(one, bad=()) for one in problems]
    with progress_bar("solutions", len(problems)) as advance:
        found = asyncio.run(run_preflight(judged, checking, advance))
    rejected = tuple(found.quarantined)
    return gold_candidates(one for one in problems if one.id not in rejected), rejected


def _report(
    read: Sequence[JudgedSamples],
    counts: Counts,
    rejected: Sequence[str],
    kept: Sequence[Candidate],
    rows: Sequence[Mapping[str, Any]],
    tokenizer: str | None,
) -> dict[str, Any]:
    """Return the content of the report file beside the rows."""
    return {
        "evaluations": [
            {
                "path": str(one.path),
                "problems": len(one.problems),
                "samples": len(one.samples),
                "accepted": one.accepted,
                "cut_off": one.cut_off,
                "ungradable": one.ungradable,
                "held_out": dict(one.held_out),
            }
            for one in read
        ],
        **asdict(counts),
        "gold_rejected": list(rejected),
        "tokens": None if tokenizer is None else _tokens(rows, tokenizer),
        "rows": [[one.problem, one.origin] for one in kept],
    }


def _tokens(rows: Sequence[Mapping[str, Any]], tokenizer: str) -> dict[str, Any]:
    """Count the tokens of whole conversations, as SFT sees them."""
    from coding_model_project.data.training.mixing import conversation_counter

    count: Callable[[Any], int] = conversation_counter(tokenizer)
    each = [count(row["messages"]) for row in rows]
    return {"tokenizer": tokenizer, "total": sum(each), "mean": fmean(each), "longest": max(each)}


def _write(path: Path, report: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=1, default=str) + "\n")


def _say(report: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for one in report["evaluations"]:
        table.add_row(
            f"{one['path']}: samples of {one['problems']} problems", f"{one['samples']:,}"
        )
        table.add_row("  accepted", f"{one['accepted']:,}")
        for key, label in (("cut_off", "accepted, but cut off"), ("ungradable", "ungradable")):
            if one[key]:
                table.add_row(f"  {label}", f"{one[key]:,}")
        for split, number in one["held_out"].items():
            table.add_row(f"  left out, of {split} problems", f"{number:,}")
    table.add_row("duplicates dropped", f"{report['duplicates']:,}")
    table.add_row("dropped beyond --per-problem", f"{report['over_limit']:,}")
    table.add_row("problems without a program", f"{len(report['without']):,}")
    for number, n_problems in report["by_problem"].items():
        if number:
            table.add_row(f"problems with {number}", f"{n_problems:,}")
    if report["kept_gold"]:
        table.add_row("rows with a gold solution", f"{report['kept_gold']:,}")
    if tokens := report["tokens"]:
        summary = f"{tokens['total']:,} (mean {tokens['mean']:.0f}, longest {tokens['longest']})"
        table.add_row("tokens", summary)
    Console(highlight=False).print(table)
    for name in report["gold_rejected"][:5]:
        print(f"{name}: its gold solution is rejected and not used", file=sys.stderr)
