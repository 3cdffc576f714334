"""The `config` command group: the configuration's keys."""

from __future__ import annotations

from pathlib import Path

from coding_model_project.cli import options
from coding_model_project.cli.commands import Commands
from coding_model_project.config_key import option

app = Commands(no_args_is_help=True, help="Look up configuration keys.")


@app.callback()
def _group() -> None:
    """Keep `reference` a subcommand: typer would inline a group's only command."""


@app.command(context_settings=options.renamed(write="out"))
def reference(
    out: Path | None = option(None, "Write the page to this file."),
) -> None:
    """Print every `coding:` key with its type, default, unit and meaning, in Markdown."""
    from coding_model_project.configs.reference import render

    if out is None:
        print(render(), end="")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(render(), "utf-8")
    print(f"the reference is in {out}")
