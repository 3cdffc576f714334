"""`sandbox`: is it safe here, run one program, how fast is it."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import MinTier, Workers, embedded_sandbox, existing_file
from coding_model_project.errors import SandboxError

app = typer.Typer(no_args_is_help=True, help="The sandbox that untrusted programs run in.")


@app.command()
def check(min_tier: MinTier = "seccomp") -> int:
    """Say how programs are isolated here, what is missing for more, and test that it holds.

    Exit code 3 if no isolation of the least tier works, or the sandbox does not do what it must.
    """
    embedded_sandbox(1, min_tier)  # refuses an unknown tier
    return asyncio.run(_check(min_tier))


async def _check(min_tier: str) -> int:
    from coding_model_project.sandbox.conformance import check as find_faults
    from coding_model_project.sandbox.embedded import EmbeddedSandbox
    from coding_model_project.sandbox.embedded.confine import Tier
    from coding_model_project.sandbox.embedded.probe import why_not

    async with EmbeddedSandbox(workers=1, min_tier=min_tier) as sandbox:
        print(f"tier: {sandbox.tier} ({sandbox.identity})")
        for tier in Tier:
            if not sandbox.tier.at_least(tier):
                print(f"missing for {tier}: {why_not(tier, sys.executable)}")
        faults = await find_faults(sandbox)
    for fault in faults:
        print(f"fault: {fault}")
    print(f"conformance: {f'{len(faults)} faults' if faults else 'passed'}")
    return SandboxError.exit_code if faults else 0


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A Python program.")],
    stdin: Annotated[str, typer.Option(help="Its standard input.")] = "",
    cpu_s: Annotated[float, typer.Option(help="CPU seconds it may use.", min=0.01)] = 5.0,
    memory_mb: Annotated[int, typer.Option(help="Megabytes it may use.", min=1)] = 512,
    min_tier: MinTier = "seccomp",
) -> int:
    """Run one program: its output, then how it ended. Exit code 1 unless it finished."""
    from coding_model_project.types import Limits, Program, Status, Stdin

    source = existing_file(file, "FILE").read_text("utf-8", "replace")
    limits = Limits(cpu_s=cpu_s, wall_s=3 * cpu_s, memory_mb=memory_mb)
    sandbox = embedded_sandbox(1, min_tier)

    async def execute():
        async with sandbox:
            return await sandbox.run(Program(source=source), [Stdin(stdin)], limits)

    (execution,) = asyncio.run(execute())
    print(execution.stdout, end="", flush=True)
    if execution.stderr_tail:
        print(execution.stderr_tail.rstrip(), file=sys.stderr)
    print(
        f"{execution.status}, exit code {execution.exit_code}, {execution.cpu_s:.3f} s CPU, "
        f"{execution.wall_s:.3f} s wall, {execution.peak_memory_mb or 0:.0f} MB",
        file=sys.stderr,
    )
    return 0 if execution.status is Status.finished else 1


@app.command()
def bench(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    rounds: Annotated[int, typer.Option(help="Rounds; the median counts.", min=1)] = 5,
    workers: Workers = None,
) -> None:
    """Measure the sandbox's speed beside a plain process per test. The last line is JSON."""
    from coding_model_project.sandbox.bench import measure

    measured = asyncio.run(measure(rounds=rounds, workers=workers))
    embedded, plain = asdict(measured.embedded), asdict(measured.subprocess)
    if not as_json:
        for name, figures in (("embedded", embedded), ("subprocess", plain)):
            print(f"{name}:", ", ".join(f"{key} {value:.1f}" for key, value in figures.items()))
    line = {
        "tier": measured.identity.split("/")[1],
        "embedded": {key: round(value, 2) for key, value in embedded.items()},
        "subprocess": {
            key: round(value, 2)
            for key, value in plain.items()
            if key in ("tests_per_s", "cpu_ms_per_test")
        },
    }
    print(json.dumps(line))
