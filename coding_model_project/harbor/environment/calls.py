"""Calls of programs on this machine: their bounded output, and their end."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from coding_model_project.harbor.environment.tree import Kept
from coding_model_project.isolation.tether import tethered

_KILL_S = 30.0
"""Wall seconds to kill all of a call's processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A running program."""

    stdout: Kept
    stderr: Kept
    ended: asyncio.Task[int]
    """Task that returns its exit code."""


@asynccontextmanager
async def calling(
    words: list[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    max_output: int,
    stdin: bytes | None = None,
    grace_s: float | None = None,
) -> AsyncIterator[Call]:
    """Start a program; on exit, end it if it still runs.

    Args:
        max_output: maximum bytes kept from each stream.
        grace_s: end also what the program started, and end it with this process, whatever ends that
            (`isolation.tether`): by SIGTERM, and after these seconds by SIGKILL.

    Raises:
        OSError, ValueError: the kernel rejects the words.
    """
    process = await asyncio.create_subprocess_exec(
        *(words if grace_s is None else tethered(words, grace_s=grace_s)),
        stdin=DEVNULL if stdin is None else PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    out, err = Kept(max_output), Kept(max_output)
    ended = asyncio.ensure_future(_to_the_end(process, stdin, out, err))
    try:
        yield Call(stdout=out, stderr=err, ended=ended)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill() if grace_s is None else process.terminate()
                if not (await asyncio.wait((ended,), timeout=(grace_s or 0.0) + _KILL_S))[0]:
                    process.kill()
        await ended


async def _to_the_end(process: Process, stdin: bytes | None, out: Kept, err: Kept) -> int:
    async def read(stream: asyncio.StreamReader | None, kept: Kept) -> None:
        while stream is not None and (chunk := await stream.read(1 << 16)):
            kept.add(chunk)

    async def write() -> None:
        if process.stdin is not None:
            with suppress(BrokenPipeError, ConnectionResetError):  # it ended, and prints the reason
                process.stdin.write(stdin or b"")
                await process.stdin.drain()
            process.stdin.close()

    await asyncio.gather(read(process.stdout, out), read(process.stderr, err), write())
    return await process.wait()
