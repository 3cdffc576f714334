"""The `export` and `serve` commands for trained models."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from coding_model_project.cli import options
from coding_model_project.cli.options import publishes, say
from coding_model_project.config_key import argument, option
from coding_model_project.errors import ConfigError
from coding_model_project.storage.fetching import folder_on_disk


@publishes
def export(
    checkpoint: Path = argument(
        ..., "A checkpoint, a run (its last checkpoint), or a model's folder."
    ),
    out: Path | None = option(
        None, "Write the model to this folder. Default: RUN/exports/global_step_N."
    ),
    evaluation: list[Path] | None = option(
        None, "Add this evaluation of the model to the model card; repeatable."
    ),
) -> None:
    """Write a checkpoint as a Hugging Face model with a card of its measured values.

    Merges shards and LoRA adapters. Repeating it with --evaluation rewrites the card; an evaluation
    of other weights is refused.
    """
    from coding_model_project.handover import export as exporting

    found = exporting.source(Path(folder_on_disk(checkpoint)))
    target = exporting.export(found, out or found.default_out, evaluation or [], print)
    print(f"{found.name} is in {target}; its card is {target / exporting.CARD}")


def serve(
    context: typer.Context,
    checkpoint: Path | None = argument(None, "A checkpoint or a model's folder."),
    latest: Path | None = option(None, "Serve the last checkpoint of this run."),
    host: options.Host = "127.0.0.1",
    port: int = option(8000, "Listen on this port.", min=1, max=65535),
    name: str | None = option(None, "Name the model for clients. Default: the name on its card."),
    follow: bool = option(
        False, "Wait for the first checkpoint of --latest, and switch to each newer one."
    ),
) -> None:
    """Serve a checkpoint with vLLM's OpenAI-compatible server until Ctrl-C.

    With --follow the model has two names: the run's, which stays, and the checkpoint's. Requests are
    refused while vLLM restarts with a newer checkpoint.

    Unknown options are passed to `vllm serve`, such as --max-model-len 4096.
    """
    from coding_model_project.handover import export as exporting
    from coding_model_project.handover import serving
    from coding_model_project.launch.device import count_gpus, prepare_environment

    more = context.args
    if str(checkpoint).startswith(
        "-"
    ):  # an option of `vllm serve`, parsed as the missing checkpoint
        if latest is None:
            raise ConfigError(
                f"serve: no checkpoint; pass one before {checkpoint}, or --latest RUN"
            )
        checkpoint, more = None, [str(checkpoint), *more]
    if (checkpoint is None) == (latest is None):
        raise ConfigError("serve: pass either a checkpoint or --latest RUN")
    if follow and latest is None:
        raise ConfigError("serve: --follow needs --latest RUN")
    on_cpu = count_gpus() == 0
    prepare_environment("cpu" if on_cpu else "cuda", alone=True)

    def command(model: Path, names: list[str]) -> list[str]:
        return serving.server_command(model, names, host=host, port=port, on_cpu=on_cpu, more=more)

    if follow and latest is not None:
        stays = name or latest.resolve().name
        print(f"model {stays} at http://{host}:{port}/v1", flush=True)
        serving.follow(latest, lambda model, of: command(model, [stays, of.name]), say=say)
    found = exporting.latest(latest) if latest else exporting.source(checkpoint or Path())
    model = serving.model_of(found, print)
    served = name or found.name
    print(f"serving {model} as {served} at http://{host}:{port}/v1; stop with Ctrl-C", flush=True)
    words = command(model, [served])
    os.execv(words[0], words)
