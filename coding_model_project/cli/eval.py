"""The `eval` command group: evaluate models, and compare evaluations."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli import eval_export, eval_import, eval_latest, eval_rejudge, eval_run
from coding_model_project.cli.common import AsJson, publishes
from coding_model_project.errors import ConfigError

if TYPE_CHECKING:
    from coding_model_project.evaluation.results import Evaluation

app = typer.Typer(no_args_is_help=True, help="Evaluate models, and compare evaluations.")
app.command("run", help=eval_run.HELP)(eval_run.run)
app.command(
    "latest",
    help=eval_latest.HELP,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(eval_latest.latest)
app.command("rejudge", help=eval_rejudge.HELP)(eval_rejudge.rejudge)
app.command("import", help=eval_import.HELP)(eval_import.import_)
app.command("export", help=eval_export.HELP)(publishes(eval_export.export))


@app.command()
def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN_A RUN_B...",
            help="Evaluations to compare with the first: [NAME=]FOLDER. Several folders for one name, "
            "comma-separated or a quoted glob ('grpo=outputs/grpo_seed*'), are its seeds.",
        ),
    ],
    k: Annotated[int, typer.Option("--k", help="Compare pass@k.", min=1)] = 1,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Compare evaluations of different protocols; different graders are always refused.",
        ),
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Write charts to this HTML page.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare evaluations problem by problem: differences with intervals, changed problems, cost."""
    from coding_model_project.evaluation.comparison import compare as compare_sides
    from coding_model_project.evaluation.comparison import read_side, refuse_other_graders, unlike

    if len(sides) < 2:
        raise ConfigError("eval compare: got one side; pass at least two")
    read = [read_side(word) for word in sides]
    names = [side.name for side in read]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"eval compare: two sides have the same name ({', '.join(names)}); pass NAME=RUN"
        )
    refuse_other_graders([one for side in read for one in side.seeds])
    if how := unlike(read):
        if not force:
            raise ConfigError(f"{how}; evaluate one of them again, or pass --force")
        print(f"note: {how}", file=sys.stderr)
    for one in (one for side in read for one in side.seeds):
        if unfinished := _unfinished(one.path):
            print(f"note: {one.path} {unfinished}; comparing its results so far", file=sys.stderr)
    result = compare_sides(read, k=k)
    if plot is not None:
        from coding_model_project.reports.comparison_page import write_plot

        write_plot(result, plot)
    if as_json:
        import orjson

        origins = {side.name: [_origin(one) for one in side.seeds] for side in read}
        print(orjson.dumps({"sides": origins, **asdict(result)}).decode())
        return
    from rich.console import Console

    from coding_model_project.evaluation.comparison.comparison_tables import tables

    Console(highlight=False).print(tables(result))
    if plot is not None:
        print(f"charts are in {plot}")


@app.command()
def budget(
    first: Annotated[Path, typer.Argument(help="An evaluation with several samples per problem.")],
    second: Annotated[
        Path, typer.Argument(help="Another evaluation, such as one with repair rounds.")
    ],
    as_json: AsJson = False,
) -> None:
    """Compare what two evaluations solve with the same tokens, and with the same judge-seconds.

    Their protocols may differ: repaired samples are compared with as many independent samples as
    the same tokens buy.
    """
    from coding_model_project.evaluation.comparison.budgets import at_budgets
    from coding_model_project.evaluation.results import read_evaluation

    points = at_budgets(read_evaluation(first), read_evaluation(second))
    if as_json:
        print(json.dumps([asdict(point) for point in points]))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("data set", "each problem", first.name, second.name, "difference", "95%", "p"):
        table.add_column(name, justify="left" if name == "data set" else "right")
    for point in points:
        unit = "tokens" if point.kind == "tokens" else "judge s"
        table.add_row(
            point.dataset,
            f"{point.budget:,.{0 if point.kind == 'tokens' else 3}f} {unit}",
            f"{point.first:.1%}",
            f"{point.second:.1%}",
            f"{point.delta:+.1%}",
            f"{point.low:+.1%} to {point.high:+.1%}",
            f"{point.p:.2g}",
        )
    Console(highlight=False).print(table)


def _origin(one: Evaluation) -> dict[str, object]:
    """Return the fields that identify an evaluation."""
    return {
        "path": str(one.path),
        "model": one.model,
        "seed": one.seed,
        "protocol": one.protocol,
        "protocol_hash": one.protocol_hash,
    }


def _unfinished(path: Path) -> str | None:
    """Return the state of an unfinished evaluation ("is running", "ended early"), or None."""
    from coding_model_project.runs.folder import RunFolder, State

    run = RunFolder(path)
    if not run.attempts() or run.state is State.finished:
        return None
    return f"is {run.state}" if run.state is State.running else f"ended early ({run.state})"
