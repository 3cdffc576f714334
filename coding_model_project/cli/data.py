"""The `data` command group: prepare data sets, and check them for grading and training."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import Seed, publishes
from coding_model_project.cli.data_dedup import dedup
from coding_model_project.cli.data_export_harbor import export_harbor
from coding_model_project.cli.data_list import list_sets
from coding_model_project.cli.data_pairs import pairs
from coding_model_project.cli.data_preflight import preflight
from coding_model_project.cli.data_rates import rates
from coding_model_project.cli.data_repair_traces import repair_traces
from coding_model_project.cli.data_rows import rows
from coding_model_project.cli.data_select_tests import select_tests
from coding_model_project.cli.data_sft_rows import sft_rows
from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Prepare and check data sets.")
app.command("list")(list_sets)
app.command()(preflight)
app.command()(publishes(rates))
app.command()(publishes(rows))
app.command()(publishes(dedup))
app.command("select-tests")(publishes(select_tests))
app.command("sft-rows")(publishes(sft_rows))
app.command("pairs")(publishes(pairs))
app.command("repair-traces")(publishes(repair_traces))
app.command("export-harbor")(export_harbor)


@app.command()
@publishes
def prepare(
    name: Annotated[
        str, typer.Argument(help="The data set: tinycode, tinygolf, tinymix or tinyshell.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the files to this folder. Default: data/NAME.")
    ] = None,
    seed: Seed = 0,
    sft_demonstrations: Annotated[
        int, typer.Option(help="Use N tinycode solutions as SFT demonstrations.")
    ] = 200,
    base_model: Annotated[
        bool, typer.Option(help="Also pre-train the tiny base model from scratch.")
    ] = False,
    calls: Annotated[
        Calls,
        typer.Option(
            help="Write tinyshell's commands as code blocks or tool calls (to data/NAME_tools)."
        ),
    ] = Calls.block,
) -> None:
    """Write a data set's problems and training files, unless they exist.

    tinycode: Python functions with tests. tinymix: tinycode plus arithmetic. tinygolf: Harbor tasks to
    shorten a function. tinyshell: Harbor tasks of one or two shell commands.
    """
    from importlib import import_module

    from coding_model_project.grading.prompts import PromptStyle
    from coding_model_project.synthetic.prepare import (
        OTHERS,
        prepare_base_model,
        prepare_tinycode,
    )

    if calls is not Calls.block and name != "tinyshell":
        raise ConfigError(
            f"--calls={calls}: {name} has no commands; only tinyshell takes this option"
        )
    folder = out or Path("data") / (name if calls is Calls.block else f"{name}_{calls}")
    if name in OTHERS:
        more = {"calls": calls} if name == "tinyshell" else {}
        others = import_module(OTHERS[name])
        others.prepare_files(folder, seed=seed, say=print, **more)
        make_model = partial(others.prepare_model, **more)
    elif name == "tinycode":
        style = PromptStyle.bare
        prepare_tinycode(
            folder, style=style, seed=seed, sft_demonstrations=sft_demonstrations, say=print
        )
        make_model = prepare_base_model
    else:
        known = ", ".join(("tinycode", *OTHERS))
        raise ConfigError(f"data prepare {name}: expected one of {known}")
    if base_model:
        make_model(folder, seed=seed, say=print)
    print(f"{name} is in {folder}")
