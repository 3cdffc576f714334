"""The `data preflight` command: check that a data set is fit for grading."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from coding_model_project.atomic import write_lines
from coding_model_project.cli.common import (
    AsJson,
    DataDir,
    DatasetName,
    DatasetPath,
    JournalFile,
    Limit,
    MapColumns,
    MaxTests,
    MinTier,
    Mutants,
    OnCluster,
    RayAddress,
    Split,
    Workers,
    given_dataset,
    print_set_aside,
)
from coding_model_project.cli.preflight_run import PreflightOptions, run_preflight
from coding_model_project.errors import ConfigError
from coding_model_project.isolation.confine import Tier
from coding_model_project.progress import progress_bar

if TYPE_CHECKING:
    from coding_model_project.data.loaders import Loaded
    from coding_model_project.data.quality.preflight import Preflight
    from coding_model_project.types import Problem

N_SHOWN = 20


def preflight(
    name: DatasetName,
    path: DatasetPath = None,
    map_columns: MapColumns = None,
    split: Split = None,
    data_dir: DataDir = None,
    mutants: Mutants = 0,
    repeats: Annotated[
        int, typer.Option(help="Judge each program N times, to find unstable verdicts.", min=1)
    ] = 1,
    quarantine: Annotated[
        Path | None,
        typer.Option(
            help="Write problems unfit for training to this JSON Lines file, with reasons."
        ),
    ] = None,
    passed: Annotated[
        Path | None,
        typer.Option(help="Write problems fit for training to this file, in our own schema."),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Load this Hub revision. Default: the pinned one.")
    ] = None,
    max_tests: MaxTests = None,
    limit: Limit = None,
    as_json: AsJson = False,
    workers: Workers = None,
    min_tier: MinTier = Tier.seccomp,
    journal: JournalFile = None,
    cluster: OnCluster = None,
    ray_address: RayAddress = None,
) -> int:
    """Check that gold solutions are accepted and known-bad programs rejected.

    Also reports duplicate ids, empty statements, absurd limits and answers that were compared with
    themselves. The last line is JSON. Exit code 1 if a problem has a fault, a gold solution is rejected,
    a known-bad program is accepted, a verdict is unstable, or there are no solutions to check with.
    """
    from coding_model_project.data.loaders import load
    from coding_model_project.data.loaders.forms import parse_map
    from coding_model_project.data.problems import write_problems

    name, path = given_dataset(name, path)
    loaded = load(
        name,
        path=path,
        split=split,
        data_dir=data_dir,
        revision=revision,
        columns=parse_map(map_columns),
        max_tests=max_tests,
    )
    problems = loaded.problems[:limit]
    if not problems:
        print_set_aside(loaded.notes, loaded.set_aside, len(loaded.problems))
        raise ConfigError(f"data preflight {name}: no usable problems ({loaded.origin})")
    options = PreflightOptions(
        mutants=mutants,
        repeats=repeats,
        workers=workers,
        min_tier=min_tier,
        on_cluster=cluster is not None,
        address=ray_address,
        journal=journal,
    )
    started = time.monotonic()
    with progress_bar(name, len(problems)) as advance:
        result = asyncio.run(run_preflight(problems, options, advance))
    seconds = time.monotonic() - started
    unfit = result.quarantined
    if quarantine is not None:
        aside = ({"where": one.where, "reasons": [one.reason]} for one in loaded.set_aside)
        write_lines(quarantine, chain(_quarantined(problems, unfit), aside))
    if passed is not None:
        write_problems(passed, (problem for problem in problems if problem.id not in unfit))
    if not as_json:
        print_set_aside(loaded.notes, loaded.set_aside, len(loaded.problems))
        _say_preflight(result)
    detailed = repeats > 1 or mutants > 0
    print(json.dumps(_last_line(name, loaded, result, seconds, detailed=detailed)))
    shown = bool(result.gold.total or result.bad.total)
    if not shown and result.compared_with_itself:
        print(f"{name}: its answers come from its solutions: nothing is shown", file=sys.stderr)
    elif not shown and result.complaints:
        print(
            f"{name}: no solution could be judged: nothing is shown of its tests; the first fault: "
            f"{result.complaints[0]}",
            file=sys.stderr,
        )
    elif not shown:
        print(f"{name} ships no solutions: nothing is shown of its tests", file=sys.stderr)
    return 0 if result.passed and shown else 1


def _quarantined(
    problems: Iterable[Problem], unfit: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, Any]]:
    """Yield {"id", "reasons", "problem"} per problem that must not train."""
    from coding_model_project.data.problems import problem_line

    for problem in problems:
        if problem.id in unfit:
            line = orjson.Fragment(problem_line(problem).rstrip())
            yield {"id": problem.id, "reasons": unfit[problem.id], "problem": line}


def _say_preflight(result: Preflight) -> None:
    if result.without_gold:
        print(f"{result.without_gold} problems have no gold solution")
    for fault, count in Counter(result.faults).items():
        print(f"{count} problems not judged: {fault}")
    if result.compared_with_itself:
        print(
            f"{result.compared_with_itself} maths problems not counted: their answer was compared with "
            "the end of their own solution, which shows nothing"
        )
    print(f"gold programs accepted: {result.gold}")
    print(f"known-bad programs rejected: {result.bad}")
    if result.mutation.problems:
        mutation = result.mutation
        print(
            f"of these mutants: {mutation.rejected}/{mutation.judged} rejected, of {mutation.problems} "
            f"problems ({mutation.with_two_operators} with two operators); {mutation.set_aside} set "
            "aside, which pass a plain run of the tests"
        )
    if result.flaky:
        print(f"flaky: {', '.join(result.flaky)}")
    for line in result.complaints[:N_SHOWN]:
        print(line, file=sys.stderr)
    if len(result.complaints) > N_SHOWN:
        print(f"and {len(result.complaints) - N_SHOWN} more", file=sys.stderr)


def _last_line(
    name: str, loaded: Loaded, result: Preflight, seconds: float, *, detailed: bool
) -> dict[str, Any]:
    """Return the machine-readable line; `detailed` adds keys."""
    line: dict[str, Any] = {
        "dataset": name,
        "problems": result.problems,
        "gold_accepted": result.gold_accepted,
        "bad_total": result.bad.total,
        "bad_rejected": result.bad.hits,
        "seconds": round(seconds, 3),
    }
    if loaded.set_aside:
        line["set_aside"] = len(loaded.set_aside)
    if result.faults:
        line["faults"] = Counter(result.faults)
    if result.compared_with_itself:
        line["compared_with_itself"] = result.compared_with_itself
    if detailed:
        line["mutants"] = asdict(result.mutation)
        line["true_positives"] = result.gold.as_json()
        line["true_negatives"] = result.bad.as_json()
        line["flaky"] = list(result.flaky)
        line["quarantined"] = len(result.quarantined)
    return line
