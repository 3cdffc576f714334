"""The `study` command group: comparisons of training runs, defined before they run."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.commands import Commands
from coding_model_project.cli.common import say

app = Commands(no_args_is_help=True, help="Run a study, or write its page.")

Definition = Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study's definition.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Write the runs to this folder. Default: outputs/studies/NAME."),
]


@app.command()
def run(definition: Definition, out: Out = None) -> None:
    """Train and evaluate each arm with each seed, skip what is done, then write the page.

    The same command resumes after an interruption or a failure. A definition that has changed since
    its first run is refused.
    """
    from coding_model_project.studies.study import read_study
    from coding_model_project.studies.study import run as run_study

    study = read_study(definition)
    folder = out or Path("outputs") / "studies" / study.name
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run_study(study, folder, say)
    finally:
        page(definition, folder)


@app.command()
def page(definition: Definition, out: Out = None) -> None:
    """Rewrite the study's page from its folders; before the first run, the page says so."""
    from coding_model_project.studies.study import read_study
    from coding_model_project.studies.study_page import write_page

    study = read_study(definition)
    folder = out or Path("outputs") / "studies" / study.name
    print(f"the page is {write_page(study, folder)}")
