"""`export` and `serve`: a trained model handed over."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import Host
from coding_model_project.errors import ConfigError


def export(
    checkpoint: Annotated[
        Path, typer.Argument(help="A checkpoint, a run (its last one), or a model's folder.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Write the model to this folder. [default: RUN/exports/global_step_N]"),
    ] = None,
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(help="Put this evaluation of the model on the card; repeatable."),
    ] = None,
) -> None:
    """Write a checkpoint as a Hugging Face model with a card that holds what was measured of it.

    Shards are merged, LoRA too. Run again with --evaluation, it writes the card anew; an evaluation
    of other weights is refused.
    """
    from coding_model_project.handover import export as exporting

    found = exporting.source(checkpoint)
    target = exporting.export(found, out or found.default_out, evaluation or [], print)
    print(f"{found.name} is in {target}; its card is {target / exporting.CARD}")


def serve(
    context: typer.Context,
    checkpoint: Annotated[
        Path | None, typer.Argument(help="A checkpoint or a model's folder.")
    ] = None,
    latest: Annotated[
        Path | None, typer.Option(help="Serve the last checkpoint of this run instead.")
    ] = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Listen on this port.", min=1, max=65535)] = 8000,
    name: Annotated[
        str | None, typer.Option(help="Name the model so for clients. [default: as on its card]")
    ] = None,
) -> None:
    """Serve a checkpoint by vLLM's OpenAI-compatible server, until Ctrl-C.

    What this command does not know is handed on to `vllm serve`: --max-model-len 4096.
    """
    from coding_model_project.handover import export as exporting
    from coding_model_project.launch.device import count_gpus, prepare_environment

    if (checkpoint is None) == (latest is None):
        raise ConfigError("serve: name a checkpoint, or a run by --latest RUN")
    found = exporting.latest(latest) if latest else exporting.source(checkpoint or Path())
    model = found.model
    if not found.is_merged:
        model = exporting.export(found, found.default_out, [], print)
    on_cpu = count_gpus() == 0
    prepare_environment("cpu" if on_cpu else "cuda")
    served = name or found.name
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
    command += ["--host", host, "--port", str(port), "--served-model-name", served]
    if on_cpu:  # vLLM's CPU build refuses seeds where a prompt is read in parts
        command += ["--no-enable-chunked-prefill", "--enforce-eager"]
    print(f"serving {model} as {served} at http://{host}:{port}/v1; Ctrl-C ends it", flush=True)
    os.execv(sys.executable, [*command, *context.args])
