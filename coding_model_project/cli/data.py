"""`data`: making data sets, and checking that they are fit to grade by."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli.common import (
    MinTier,
    Workers,
    embedded_sandbox,
    existing_file,
)
from coding_model_project.errors import ConfigError
from coding_model_project.progress import progress_bar

if TYPE_CHECKING:
    from coding_model_project.types import Problem

EMBEDDED = "tinycode"
N_SHOWN = 20

app = typer.Typer(no_args_is_help=True, help="Prepare and check data sets.")


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="The data set: tinycode.")],
    out: Annotated[Path, typer.Option(help="The folder for its files.")] = Path("data/tinycode"),
    seed: Annotated[int, typer.Option(help="Seed of the task generator.")] = 0,
    sft_demonstrations: Annotated[int, typer.Option(help="Solutions shown in SFT.")] = 200,
    base_model: Annotated[
        bool, typer.Option(help="Also pre-train the tiny starting model from scratch.")
    ] = False,
) -> None:
    """Write a data set's problems and training files; does nothing if they are there."""
    from coding_model_project.data.prepare import prepare_base_model, prepare_tinycode
    from coding_model_project.prompts import PromptStyle

    if name != EMBEDDED:
        raise ConfigError(f"data prepare {name}: the embedded data set is {EMBEDDED}")
    prepare_tinycode(
        out, style=PromptStyle.bare, seed=seed, sft_demonstrations=sft_demonstrations, say=print
    )
    if base_model:
        prepare_base_model(out, seed=seed, say=print)
    print(f"{name} is in {out}")


@app.command()
def preflight(
    name: Annotated[str, typer.Argument(help="The data set's name.")],
    path: Annotated[Path | None, typer.Option(help="Its problems, one JSON object a line.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    workers: Workers = None,
    min_tier: MinTier = "seccomp",
) -> int:
    """Check that gold solutions are accepted and known-bad ones rejected.

    The last line is JSON. Exit code 1 if a gold one is rejected or a known-bad one accepted.
    """
    from coding_model_project.data.preflight import preflight as check

    problems = _problems(name, path)
    sandbox = embedded_sandbox(workers, min_tier)

    async def run():
        async with sandbox:
            return await check(problems, sandbox, progress=advance)

    with progress_bar(name, sum(len(p.gold) + len(p.bad) for p in problems)) as advance:
        result = asyncio.run(run())
    if not as_json:
        if result.without_gold:
            print(f"{result.without_gold} problems have no gold solution")
        for line in result.complaints[:N_SHOWN]:
            print(line, file=sys.stderr)
        if len(result.complaints) > N_SHOWN:
            print(f"and {len(result.complaints) - N_SHOWN} more", file=sys.stderr)
    line = {
        "dataset": name,
        "problems": result.problems,
        "gold_accepted": result.gold_accepted,
        "bad_total": result.bad_total,
        "bad_rejected": result.bad_rejected,
        "seconds": round(result.seconds, 3),
    }
    print(json.dumps(line))
    return 0 if result.passed else 1


def _problems(name: str, path: Path | None) -> tuple[Problem, ...]:
    if path is not None:
        from coding_model_project.data.problems import read_problems

        problems = read_problems(existing_file(path, "--path"))
    elif name == EMBEDDED:
        from coding_model_project.data.tinycode import generate

        problems = tuple(task.problem for task in generate().tasks)
    else:
        raise ConfigError(f"data preflight {name}: name its file of problems with --path")
    if not any(problem.gold or problem.bad for problem in problems):
        raise ConfigError(f"data preflight {name}: no problem has a gold or known-bad solution")
    return problems
