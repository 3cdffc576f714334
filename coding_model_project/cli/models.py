"""`export` and `serve`: a trained model handed over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import Host, publishes
from coding_model_project.errors import ConfigError


@publishes
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
    from coding_model_project.storage.fetching import folder_on_disk

    found = exporting.source(Path(folder_on_disk(checkpoint)))
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
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Serve each newer checkpoint of --latest in its turn, and wait for the first one.",
        ),
    ] = False,
) -> None:
    """Serve a checkpoint by vLLM's OpenAI-compatible server, until Ctrl-C.

    With --follow the model has two names: the run's, which stays, and the checkpoint's. Requests are
    refused for the time that vLLM takes to start with a newer one.

    What this command does not know is handed on to `vllm serve`: --max-model-len 4096.
    """
    from coding_model_project.handover import export as exporting
    from coding_model_project.handover import serving
    from coding_model_project.launch.device import count_gpus, prepare_environment

    more = context.args
    if str(checkpoint).startswith("-"):  # an option of `vllm serve`, where no checkpoint is named
        if latest is None:
            raise ConfigError(f"serve: name the checkpoint before {checkpoint}")
        checkpoint, more = None, [str(checkpoint), *more]
    if (checkpoint is None) == (latest is None):
        raise ConfigError("serve: name a checkpoint, or a run by --latest RUN")
    if follow and latest is None:
        raise ConfigError("serve: --follow goes with --latest RUN")
    on_cpu = count_gpus() == 0
    prepare_environment("cpu" if on_cpu else "cuda")

    def command(model: Path, names: list[str]) -> list[str]:
        return serving.server_command(model, names, host=host, port=port, on_cpu=on_cpu, more=more)

    if follow and latest is not None:
        stays = name or latest.resolve().name
        print(f"model {stays} at http://{host}:{port}/v1", flush=True)
        serving.follow(latest, lambda model, of: command(model, [stays, of.name]), say=_say)
    found = exporting.latest(latest) if latest else exporting.source(checkpoint or Path())
    model = serving.model_of(found, print)
    served = name or found.name
    print(f"serving {model} as {served} at http://{host}:{port}/v1; Ctrl-C ends it", flush=True)
    words = command(model, [served])
    os.execv(words[0], words)


def _say(line: str) -> None:
    print(line, flush=True)
