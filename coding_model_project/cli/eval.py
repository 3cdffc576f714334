"""`eval`: what evaluations say of each other."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.errors import ConfigError

if TYPE_CHECKING:
    from coding_model_project.evaluation.results import Evaluation

app = typer.Typer(no_args_is_help=True, help="Hold evaluations against each other.")


@app.callback()
def _group() -> None:
    """Keeps `compare` a command of its own while it is the only one."""


@app.command()
def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN_A RUN_B...",
            help="Evaluations, each held against the first: [NAME=]FOLDER. Several folders of one "
            "side, by commas or a quoted glob ('grpo=outputs/grpo_seed*'), are its seeds.",
        ),
    ],
    k: Annotated[int, typer.Option("--k", help="Compare pass@k.", min=1)] = 1,
    force: Annotated[
        bool, typer.Option("--force", help="Compare evaluations of different protocols.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Write charts to this .html page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Compare evaluations problem by problem: differences, how sure they are, what changed, cost."""
    from coding_model_project.evaluation.comparison import compare as compared
    from coding_model_project.evaluation.comparison import read_side, unlike

    if len(sides) < 2:
        raise ConfigError("eval compare: one side has nothing to be compared with; give two")
    read = [read_side(word) for word in sides]
    names = [side.name for side in read]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"eval compare: two sides are called alike ({', '.join(names)}): NAME=RUN"
        )
    if how := unlike(read):
        if not force:
            raise ConfigError(f"{how}; evaluate one of them again, or add --force")
        print(f"note: {how}", file=sys.stderr)
    for one in (one for side in read for one in side.seeds):
        if unfinished := _unfinished(one.path):
            print(f"note: {one.path} {unfinished}; what it has so far is compared", file=sys.stderr)
    result = compared(read, k=k)
    if plot is not None:
        from coding_model_project.evaluation.comparison.plot import write_plot

        write_plot(result, plot)
    if as_json:
        import orjson

        said = {side.name: [_origin(one) for one in side.seeds] for side in read}
        print(orjson.dumps({"sides": said, **asdict(result)}).decode())
        return
    from rich.console import Console

    from coding_model_project.evaluation.comparison.show import tables

    Console(highlight=False).print(tables(result))
    if plot is not None:
        print(f"charts are in {plot}")


def _origin(one: Evaluation) -> dict[str, object]:
    """Which evaluation it was."""
    return {
        "path": str(one.path),
        "model": one.model,
        "seed": one.seed,
        "protocol": one.protocol,
        "protocol_hash": one.protocol_hash,
    }


def _unfinished(path: Path) -> str | None:
    """How an evaluation stands that has not come to its end: is running, ended early."""
    from coding_model_project.runs.folder import RunFolder, State

    run = RunFolder(path)
    if not run.attempts() or run.state is State.finished:
        return None
    return f"is {run.state}" if run.state is State.running else f"ended early ({run.state})"
