"""The `doctor` command, which checks whether this machine can train, and the `config` group."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from coding_model_project.cli import options
from coding_model_project.cli.commands import Commands
from coding_model_project.config_key import option

if TYPE_CHECKING:
    from coding_model_project.doctor import Finding


_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    as_json: bool = option(False, options.AS_JSON),
    deep: bool = option(False, "Also import torch, vllm, ray and verl (takes a minute)."),
    verl_overrides: str | None = option(
        None,
        "Check the keys of a command of verl's main_ppo instead: a shell script, a YAML file, "
        "or the overrides themselves.",
        metavar="FILE|TEXT",
    ),
) -> int:
    """Check whether this machine can train, and print remedies. Exit code 1 if it cannot.

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

    findings = diagnose(Path.cwd(), imports=deep)
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
