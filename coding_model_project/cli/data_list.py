"""The `data list` command: list the data sets known by name."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli.common import AsJson, DataDir

if TYPE_CHECKING:
    from coding_model_project.data.catalogue import Entry

_WIDTH = 180
"""Table width in characters where the output is not a terminal."""


_WHOLE = ("name", "found", "role: splits")
"""Columns that do not wrap."""


def list_sets(
    data_dir: DataDir = None,
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the table to this Markdown file, without the local files found."),
    ] = None,
) -> None:
    """List the data sets known by name: splits, roles, tests, licence, and local files found.

    Each name also works with a split appended (mbpp_train). With --json the output is a list of
    objects: name, splits with their roles, tests, licence, hub, files (searched for), found.
    """
    from coding_model_project.data.catalogue import catalogue, render
    from coding_model_project.data.loaders import data_dir as folder

    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(render(), "utf-8")
        print(f"the page is in {out}")
        return
    entries = catalogue(folder(data_dir))
    if as_json:
        print(json.dumps([asdict(entry) for entry in entries]))
        return
    _show(entries)
    n_found = sum(bool(entry.found) for entry in entries)
    print(
        f"\n{n_found} of {len(entries)} found under {folder(data_dir)}; the others download from the Hub."
    )


def _show(entries: tuple[Entry, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in (*_WHOLE, "tests", "licence", "hub, and files searched for"):
        narrow = 24 if column in ("tests", "licence") else None
        table.add_column(column, overflow="fold", no_wrap=column in _WHOLE, max_width=narrow)
    for one in entries:
        uses = one.uses.replace("; ", "\n")
        places = "\n".join(word for word in (one.hub, ", ".join(one.files)) if word)
        table.add_row(one.name, one.status, uses, one.tests, one.licence, places)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(width=_WIDTH, markup=False, highlight=False)
    console.print(table)
