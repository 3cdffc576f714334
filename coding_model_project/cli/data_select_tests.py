"""The `data select-tests` command: choose the tests that reject the most known-bad programs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli.common import (
    AsJson,
    DataDir,
    DatasetName,
    DatasetPath,
    Limit,
    MapColumns,
    MinTier,
    Mutants,
    Split,
    Workers,
    embedded_sandbox,
    given_dataset,
)
from coding_model_project.errors import ConfigError
from coding_model_project.isolation.confine import Tier
from coding_model_project.progress import progress_bar

if TYPE_CHECKING:
    from coding_model_project.data.quality.discrimination import Selection


def select_tests(
    name: DatasetName,
    out: Annotated[
        Path, typer.Option(help="Write the chosen tests to this file, for `data rows --tests`.")
    ],
    k: Annotated[
        int | None,
        typer.Option("--k", help="Keep the first N tests. Default: all, reordered.", min=1),
    ] = None,
    path: DatasetPath = None,
    map_columns: MapColumns = None,
    split: Split = None,
    data_dir: DataDir = None,
    mutants: Mutants = 10,
    limit: Limit = None,
    as_json: AsJson = False,
    workers: Workers = None,
    min_tier: MinTier = Tier.seccomp,
) -> int:
    """Order each problem's hidden tests by the known-bad programs they reject, and keep the first k.

    The last line is JSON. Exit code 1 if no problem's tests could be ordered.
    """
    from coding_model_project.atomic import write_lines
    from coding_model_project.data.loaders import load
    from coding_model_project.data.loaders.forms import parse_map
    from coding_model_project.data.quality.discrimination import select_tests as select

    name, path = given_dataset(name, path)
    columns = parse_map(map_columns)
    loaded = load(name, path=path, split=split, data_dir=data_dir, columns=columns)
    problems = list(loaded.problems[:limit])
    if not problems:
        raise ConfigError(f"data select-tests {name}: no usable problems ({loaded.origin})")
    sandbox = embedded_sandbox(workers, min_tier)

    async def run() -> Selection:
        async with sandbox:
            return await select(
                problems, sandbox, k=k, mutants_per_problem=mutants, progress=advance
            )

    with progress_bar(name, len(problems)) as advance:
        selection = asyncio.run(run())
    write_lines(out, selection.orders)
    if not as_json:
        _say(selection)
        print(f"the order of tests is in {out}")
    print(json.dumps(_last_line(name, selection)))
    return 0 if selection.orders else 1


def _say(selection: Selection) -> None:
    """Print the tests kept and the executions saved."""
    from collections import Counter

    total = selection.total
    for reason, count in Counter(why for _, why in selection.skipped).items():
        print(f"{count} problems keep their tests as they are: {reason}")
    if not total.problems:
        return
    print(
        f"{total.problems} problems, {total.chosen:,} of {total.tests:,} tests chosen; "
        f"{total.kept.total:,} known-bad programs rejected by all tests, {total.undetected:,} by none"
    )
    if each := total.kept.total:
        for label, kept in (
            ("chosen tests", total.kept),
            ("chosen for other programs", total.held_out),
            ("as many in the set's order", total.as_given),
        ):
            print(f"rejected by {label:28} {kept.hits:,}/{kept.total:,} = {kept.hits / each:.1%}")
        print(
            f"executions of a rejected program: {total.executions / each:.2f} on all tests; with an "
            f"early stop {total.stopped_as_given / each:.2f} in the set's order, "
            f"{total.stopped_ordered / each:.2f} in the new one"
        )


def _last_line(name: str, selection: Selection) -> dict[str, object]:
    line: dict[str, object] = {"dataset": name, **asdict(selection.total)}
    return line | {"skipped": len(selection.skipped), "seconds": round(selection.seconds, 2)}
