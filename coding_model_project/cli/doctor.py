"""The `doctor` command, which checks whether this machine can train, and the `config` group."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coding_model_project.cli import options
from coding_model_project.cli.commands import Commands
from coding_model_project.config_key import argument, option
from coding_model_project.errors import ConfigError

if TYPE_CHECKING:
    from coding_model_project.doctor import Finding


RECIPES = ("grpo", "repair", "harbor", "sft", "dpo")
_OF_A_NODE = "Number of {} per node. Default: this machine's."
_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    as_json: bool = option(False, options.AS_JSON),
    deep: bool = option(False, "Also import torch, vllm, ray and verl (takes a minute)."),
    profile: str | None = option(
        None, "Check a hardware profile instead: cpu, gpu_1x, gpu_8x or gpu_multi."
    ),
    recipe: str = option("grpo", f"Estimate this recipe, with --profile: {', '.join(RECIPES)}."),
    gpus: int | None = option(None, _OF_A_NODE.format("GPUs"), min=0),
    gpu_memory_gb: float | None = option(
        None, "Memory per GPU, in GiB. Default: this machine's.", min=1
    ),
    cpus: int | None = option(None, _OF_A_NODE.format("CPUs"), min=1),
    memory_gb: float | None = option(
        None, "Memory per node, in GiB. Default: this machine's free memory.", min=1
    ),
    nodes: int = option(1, "Number of nodes.", min=1),
    verl_overrides: str | None = option(
        None,
        "Check the keys of a command of verl's main_ppo instead: a shell script, a YAML file, "
        "or the overrides themselves.",
        metavar="FILE|TEXT",
    ),
    overrides: list[str] = argument([], "The recipe's overrides (key=value), with --profile."),
) -> int:
    """Check whether this machine can train, and print remedies. Exit code 1 if it cannot.

    With --profile, estimate what a recipe's hardware profile needs instead, and compare it with this
    machine or with the one described by --gpus, --gpu-memory-gb, --cpus, --memory-gb and --nodes.

    With --verl-overrides, check instead what verl's main_ppo does with each key of a command, and print
    the line to write for keys that are refused, ignored, or fail after Ray has started.
    """
    if verl_overrides is not None:
        from coding_model_project.doctor import verl_command

        checked = verl_command.check(verl_overrides)
        if as_json:
            print(json.dumps(verl_command.as_json(checked)))
        else:
            print("\n".join(verl_command.as_text(checked)))
        return 1 if verl_command.is_faulty(checked) else 0
    from coding_model_project.doctor import Status, diagnose

    described = {"gpus": gpus, "gpu_memory_gb": gpu_memory_gb, "cpus": cpus, "memory_gb": memory_gb}
    given: dict[str, Any] = {name: value for name, value in described.items() if value is not None}
    if nodes != 1:
        given["nodes"] = nodes
    if profile is None:
        if given or overrides:
            word = [*overrides, *(f"--{name.replace('_', '-')}" for name in given)][0]
            if Path(word).is_file():
                raise ConfigError(
                    f"{word}: to check a command of verl, pass --verl-overrides {word}"
                )
            raise ConfigError(f"{word}: only used with --profile; add --profile gpu_8x")
        findings = diagnose(Path.cwd(), imports=deep)
    else:
        from coding_model_project.doctor.profile import compared, this_machine

        if recipe not in RECIPES:
            raise ConfigError(f"--recipe={recipe}: expected one of {', '.join(RECIPES)}")
        machine = replace(this_machine(), **given)  # facts that are not given are this machine's
        if machine.gpus and machine.gpu_memory_gb is None:
            raise ConfigError(
                "--gpu-memory-gb: unknown for the GPUs of this machine; pass it, in GiB"
            )
        place = None if given else Path.cwd()
        findings = [*compared(recipe, profile, overrides, machine, place)]
    counts = {
        str(status): sum(finding.status is status for finding in findings) for status in Status
    }
    if as_json:
        print(json.dumps({"counts": counts, "findings": [asdict(f) for f in findings]}))
    else:
        _show(findings)
        found = ", ".join(
            f"{n} {word}{'s' * (n != 1 and word != 'ok')}" for word, n in counts.items()
        )
        print(f"{found}: {'training will fail' if counts['problem'] else 'ready to train'}")
    return 1 if counts["problem"] else 0


def _show(findings: list[Finding]) -> None:
    """Print a line per finding with its remedy below; coloured on a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        status = Text(f"{finding.status:<8}", style=_STYLES[finding.status])
        console.print(status, f"{finding.name:<{width}} ", finding.finding, markup=False)
        if finding.remedy:
            console.print(" " * (width + 11) + f"→ {finding.remedy}", markup=False)


# ── configuration keys ──────────────────────────────────────────────────────────────────────────────


config = Commands(no_args_is_help=True, help="Look up configuration keys.")


@config.callback()
def _group() -> None:
    """Keep `reference` a subcommand: typer would inline a group's only command."""


@config.command(context_settings=options.renamed(write="out"))
def reference(
    out: Path | None = option(None, "Write the page to this file."),
) -> None:
    """Print every `coding:` key with its type, default, unit and meaning, in Markdown."""
    from coding_model_project.configs.reference import render

    if out is None:
        print(render(), end="")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(render(), "utf-8")
    print(f"the reference is in {out}")
