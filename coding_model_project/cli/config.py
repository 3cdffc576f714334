"""`config`: what can be configured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="What can be configured.")


@app.callback()
def _group() -> None:
    """Keeps `reference` a command of its own while it is the only one."""


@app.command()
def reference(
    write: Annotated[Path | None, typer.Option(help="Write it to this file instead.")] = None,
) -> None:
    """Print every `coding:` key with its type, default, unit and meaning, in Markdown."""
    from coding_model_project.configs.reference import render

    if write is None:
        print(render(), end="")
        return
    write.parent.mkdir(parents=True, exist_ok=True)
    write.write_text(render(), "utf-8")
    print(f"the reference is in {write}")
