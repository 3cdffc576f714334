"""`watch`: evaluates the checkpoints of trainings as they appear."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import Every
from coding_model_project.errors import ConfigError

DEFAULT = "{python} -m coding_model_project eval run --mode simple --model {model} --out {out}"


def watch(
    globs: Annotated[
        list[str],
        typer.Argument(
            metavar="GLOB...",
            help="Runs or checkpoints, quoted: 'outputs/grpo*' finds new ones too; or URLs.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Write the curve and all evaluations to this folder.")
    ] = Path("outputs/watch"),
    arguments: Annotated[
        str,
        typer.Option(help="Add to the default command: --arguments='--dataset mbpp_reg --n 4'."),
    ] = "",
    command: Annotated[
        str | None,
        typer.Option(
            help="Evaluate by another command: {python}, {model}, {out} and {step} are filled in."
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(help="Evaluate on these GPUs: one each on 0,1; one on each pair of 0+1,2+3."),
    ] = None,
    every: Every = 20.0,
    once: Annotated[bool, typer.Option("--once", help="Evaluate what is there, then end.")] = False,
    until_ended: Annotated[
        bool, typer.Option("--until-ended", help="End once no run of a recipe is running any more.")
    ] = False,
) -> None:
    """Evaluate each checkpoint once, as it appears, and draw the curve; until Ctrl-C.

    The same command goes on where it ended. Without --devices, one evaluation at a time. What is
    written: OUT/curve.jsonl, a folder and a log for each evaluation; `report RUN` shows the curve.
    A --command may be another tool's (lm_eval, OLMES, a script), which writes its results into {out}.
    Exit code 3 if a checkpoint could not be evaluated.
    """
    from rich.console import Console

    from coding_model_project.evaluation.watch import Plan, view
    from coding_model_project.evaluation.watch import watch as watch_checkpoints
    from coding_model_project.isolation.processes import start_sentinel

    if command is not None and arguments:
        raise ConfigError("--command and --arguments: put all of it into the command")
    if devices is not None and not all(one.strip("+ ") for one in devices.split(",")):
        raise ConfigError(f"--devices={devices}: numbers such as 0,1, or 0+1,2+3")
    plan = Plan(
        patterns=tuple(globs),
        out=out,
        command=command or f"{DEFAULT} {arguments}".strip(),
        devices=(None,)
        if devices is None
        else tuple(one.strip().replace("+", ",") for one in devices.split(",")),
        every_s=every,
        once=once,
        until_ended=until_ended,
    )
    start_sentinel()  # a kill of this process ends what commands have started, too
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    curve = watch_checkpoints(plan, lambda line: print(line, flush=True))
    Console(highlight=False).print(view(curve))
