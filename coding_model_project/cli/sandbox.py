"""`sandbox`: is it safe here, run one program, how fast is it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import MinTier, embedded_sandbox, existing_file

app = typer.Typer(no_args_is_help=True, help="The sandbox that untrusted programs run in.")


@app.command()
def check(min_tier: MinTier = "seccomp") -> int:
    """Say how programs are isolated here, what is missing for more, and test that it holds.

    Exit code 3 if no isolation of the least tier works, or the sandbox does not do what it must.
    """
    embedded_sandbox(1, min_tier)  # refuses an unknown tier
    return asyncio.run(_check(min_tier))


async def _check(min_tier: str) -> int:
    from coding_model_project.errors import SandboxError
    from coding_model_project.sandbox.conformance import check as find_faults
    from coding_model_project.sandbox.embedded import EmbeddedSandbox
    from coding_model_project.sandbox.embedded.confine import Tier

    async with EmbeddedSandbox(workers=1, min_tier=min_tier) as sandbox:
        print(f"tier: {sandbox.tier} ({sandbox.identity})")
        faults = list(await find_faults(sandbox))
        for tier in Tier:
            if sandbox.tier.at_least(tier):
                continue
            try:
                async with EmbeddedSandbox(workers=1, tier=tier):
                    pass
            except SandboxError as error:
                print(f"missing for {tier}: {error}")
    for fault in faults:
        print(f"fault: {fault}")
    print(f"conformance: {f'{len(faults)} faults' if faults else 'passed'}")
    return 3 if faults else 0


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
