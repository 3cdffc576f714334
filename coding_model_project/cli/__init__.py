"""The command line: `coding-model`, or `python -m coding_model_project`.

commands      options from parameters and from the fields of dataclasses
options       options and helpers that several commands share: problems, data sets, where programs run
grade sandbox harbor harbor_eval
data data_checks data_rows data_samples
eval (with study) models (eval run, eval latest, export, serve)
doctor (with config) jobs runs (with watch and report)

Heavy imports happen inside the commands, so that `--help` is fast.

Exit codes: 0 done, 1 check failed, 2 wrong usage or configuration, 3 infrastructure failed,
130 interrupted. An error is one line on standard error; `--debug` adds a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer

from coding_model_project import __version__
from coding_model_project.cli import (
    data,
    doctor,
    eval,
    grade,
    harbor,
    jobs,
    models,
    runs,
    sandbox,
)
from coding_model_project.cli.commands import Commands, Group
from coding_model_project.config_key import option
from coding_model_project.errors import INTERRUPTED, CodingModelError
from coding_model_project.extras import RECIPES, SCRIPT, program
from coding_model_project.redaction import redacted
from coding_model_project.runs.console import quiet_requests, reader_may_leave

_HELP = """Reinforcement learning on code: judge programs, make data, evaluate and train models.

\b
Training and evaluation recipes are separate programs, each with a --help:
{recipes}

\b
Example:
  {program} data preflight tinycode_test
  python -m recipes.grpo hardware=cpu coding.reward.kind=dense
  {program} report outputs/grpo
"""
_RECIPE_LINES = "\n".join(f"  python -m recipes.{name:<9} {does}" for name, does in RECIPES.items())

_PANELS = _JUDGE, _DATA, _EVALUATE, _TRAIN, _RUNS = "Judge", "Data", "Evaluate", "Train", "Runs"


class _InPanels(Group):
    """A group that lists commands in the order of `_PANELS`; typer lists groups after commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        panels = {name: command.rich_help_panel for name, command in self.commands.items()}  # pyrefly: ignore[missing-attribute]
        order = [*_PANELS, *(panel for panel in panels.values() if panel not in _PANELS)]
        return sorted(self.commands, key=lambda name: order.index(panels[name]))


app = Commands(cls=_InPanels, no_args_is_help=True)
app.command("grade", rich_help_panel=_JUDGE)(grade.grade)
app.add_typer(sandbox.app, name="sandbox", rich_help_panel=_JUDGE)
app.add_typer(harbor.app, name="harbor", rich_help_panel=_JUDGE)
app.add_typer(data.app, name="data", rich_help_panel=_DATA)
app.add_typer(eval.app, name="eval", rich_help_panel=_EVALUATE)
app.add_typer(eval.studies, name="study", rich_help_panel=_EVALUATE)
app.command("doctor", rich_help_panel=_TRAIN)(doctor.doctor)
app.add_typer(doctor.config, name="config", rich_help_panel=_TRAIN)
app.add_typer(jobs.app, name="jobs", rich_help_panel=_TRAIN)
app.add_typer(runs.app, name="runs", rich_help_panel=_RUNS)
app.command("watch", rich_help_panel=_RUNS)(runs.watch)
app.command("report", rich_help_panel=_RUNS)(runs.report)
app.command("export", rich_help_panel=_RUNS)(models.export)
app.command(
    "serve",
    rich_help_panel=_RUNS,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(models.serve)


def _print_version(requested: bool) -> None:
    if requested:
        print(SCRIPT, __version__)
        raise typer.Exit


@app.callback(help=_HELP.format(program=program(), recipes=_RECIPE_LINES))
def _options(
    debug: bool = option(False, "Print a traceback with an error."),
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version and exit.",
        callback=_print_version,
        is_eager=True,
    ),
) -> None: ...


_UsageError: Any = typer.BadParameter.__base__
"""Click's UsageError, which typer vendors but does not export."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    # Shell completion works only for the script's name: after `python -m` it completes Python's options.
    completes = any(argument.endswith("-completion") for argument in given[:1])
    return run_app(app, SCRIPT if completes else program(), given)


@reader_may_leave()
def run_app(app: typer.Typer, name: str, arguments: Sequence[str]) -> int:
    """Run a command line with this project's error format and return its exit code.

    Args:
        name: the program's name as typed on the command line.
    """
    given = list(arguments)
    debug = "--debug" in given
    command = [argument for argument in given if argument != "--debug"]  # at any position
    if not debug:
        quiet_requests()
    try:
        return app(command, prog_name=name, standalone_mode=False) or 0
    except _UsageError as error:
        if not command or type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            return 2
        # typer words a wrong choice as "Invalid value for '--x': Value error, …".
        message = error.format_message().replace(": Value error,", ":")
        return _fail(f"{message} (see --help)", 2)
    except CodingModelError as error:
        if debug:
            raise
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except OSError as error:
        if debug:
            raise
        return _fail(str(error), CodingModelError.exit_code)


def _fail(message: str, code: int) -> int:
    print("error:", redacted(" ".join(message.split())), file=sys.stderr)
    return code
