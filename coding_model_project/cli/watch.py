"""The `watch` command: evaluate checkpoints of training runs as they appear."""

from __future__ import annotations

import signal
from pathlib import Path

from coding_model_project.cli import options
from coding_model_project.cli.common import say
from coding_model_project.config_key import argument, option
from coding_model_project.errors import ConfigError

DEFAULT = "{python} -m coding_model_project eval run --mode simple --model {model} --out {out}"


def watch(
    globs: list[str] = argument(
        ...,
        "Runs, checkpoints or their URLs; a quoted glob ('outputs/grpo*') also finds new ones.",
        metavar="GLOB...",
    ),
    out: Path = option(
        Path("outputs/watch"), "Write the curve and all evaluations to this folder."
    ),
    arguments: str = option(
        "", "Add these options to `eval run`, such as --arguments='--dataset mbpp_reg --n 4'."
    ),
    command: str | None = option(
        None, "Evaluate with this command; {python}, {model}, {out} and {step} are substituted."
    ),
    devices: str | None = option(
        None, "Evaluate on these GPUs: 0,1 runs one evaluation per GPU, 0+1,2+3 one per pair."
    ),
    every: options.Every = 20.0,
    once: bool = option(False, "Evaluate existing checkpoints, then end."),
    until_ended: bool = option(False, "End when no recipe's run is running."),
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
