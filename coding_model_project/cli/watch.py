"""The `watch` command: evaluate checkpoints of training runs as they appear."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli import options
from coding_model_project.cli.common import say
from coding_model_project.errors import ConfigError

DEFAULT = "{python} -m coding_model_project eval run --mode simple --model {model} --out {out}"


def watch(
    globs: Annotated[
        list[str],
        typer.Argument(
            metavar="GLOB...",
            help="Runs, checkpoints or their URLs; a quoted glob ('outputs/grpo*') also finds new ones.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Write the curve and all evaluations to this folder.")
    ] = Path("outputs/watch"),
    arguments: Annotated[
        str,
        typer.Option(
            help="Add these options to `eval run`, such as --arguments='--dataset mbpp_reg --n 4'."
        ),
    ] = "",
    command: Annotated[
        str | None,
        typer.Option(
            help="Evaluate with this command; {python}, {model}, {out} and {step} are substituted."
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            help="Evaluate on these GPUs: 0,1 runs one evaluation per GPU, 0+1,2+3 one per pair."
        ),
    ] = None,
    every: options.Every = 20.0,
    once: Annotated[
        bool, typer.Option("--once", help="Evaluate existing checkpoints, then end.")
    ] = False,
    until_ended: Annotated[
        bool, typer.Option("--until-ended", help="End when no recipe's run is running.")
    ] = False,
) -> None:
    """Evaluate each checkpoint once, as it appears, and draw the curve, until Ctrl-C.

    The same command resumes. Without --devices, one evaluation runs at a time. Writes OUT/curve.jsonl,
    and a folder and a log per evaluation; `report RUN` shows the curve.
    --command may run another tool (lm_eval, OLMES, a script) that writes its results into {out}.
    Exit code 3 if a checkpoint could not be evaluated.
    """
    from rich.console import Console

    from coding_model_project.evaluation.watch import Plan, view
    from coding_model_project.evaluation.watch import watch as watch_checkpoints
    from coding_model_project.isolation.processes import start_sentinel

    if command is not None and arguments:
        raise ConfigError(
            "--command and --arguments exclude each other; put the arguments into --command"
        )
    if devices is not None and not all(one.strip("+ ") for one in devices.split(",")):
        raise ConfigError(f"--devices={devices}: expected GPU numbers such as 0,1 or 0+1,2+3")
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
    start_sentinel()  # ends the evaluations' processes if this one is killed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    curve = watch_checkpoints(plan, say)
    Console(highlight=False).print(view(curve))
