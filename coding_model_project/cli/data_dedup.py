"""The `data dedup` command: remove duplicates and evaluation problems from training sets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import AsJson, DataDir, MapColumns, Split


def dedup(
    training: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME[=PATH]...", help="Training sets by name or file, or files of problems."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Write problems, manifest and report to this folder.")],
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Remove problems of these evaluation sets, comma-separated. Default: all."
        ),
    ] = None,
    map_columns: MapColumns = None,
    split: Split = None,
    data_dir: DataDir = None,
    download: Annotated[
        bool, typer.Option("--download", help="Download missing evaluation sets.")
    ] = False,
    max_tests: Annotated[
        int, typer.Option(help="Keep at most N hidden tests per problem.", min=1)
    ] = 50,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 if an evaluation set is missing.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Remove duplicates and copies of evaluation problems from training sets.

    The last line is JSON.
    """
    from coding_model_project.data.dedup.govern import as_json as pictured
    from coding_model_project.data.dedup.govern import govern
    from coding_model_project.data.governance import EVALUATION_SETS
    from coding_model_project.data.loaders.forms import parse_map

    governed = govern(
        training,
        against=[name for given in against for name in given.split(",")]
        if against
        else EVALUATION_SETS,
        out=out,
        folder=data_dir,
        download=download,
        max_tests=max_tests,
        columns=parse_map(map_columns),
        split=split,
        say=lambda line: None if as_json else print(line, file=sys.stderr),
    )
    if not as_json:
        for name, why in governed.absent:
            print(f"not checked: {name}: {why}", file=sys.stderr)
        print(f"problems, manifest and report are in {out}")
    picture = pictured(governed)
    keys = ("kept", "removed", "removed_by", "seconds")
    line = {key: picture[key] for key in keys} | {"not_checked": sorted(picture["not_checked"])}
    print(json.dumps(line))
    return 1 if strict and governed.absent else 0
