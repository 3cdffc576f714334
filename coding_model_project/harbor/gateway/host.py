"""Agents on this machine: a process and its descendants, killed when its time is over."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.isolation.processes import TOKEN
from coding_model_project.isolation.tether import tethered

_INHERITED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", TOKEN),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
"""Variables that an agent inherits from this process: none of the training's credentials."""

_GRACE_S = 2.0
_KILL_S = 30.0
"""Wall seconds to kill all of an agent's processes."""
_TAIL_BYTES = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The end of an agent's process."""

    code: int
    """128 plus the signal's number if a signal ended it."""
    output: str
    """The end of its output."""


async def run(command: str, *, cwd: Path, env: Mapping[str, str]) -> Exit:
    """Run a command, tethered to this process (`isolation.tether`), until it and its descendants end.

    If this is cancelled, they are ended: by SIGTERM first, then by SIGKILL.

    Args:
        env: variables in addition to the few inherited ones.

    Raises:
        OSError: it cannot be started.
    """
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *tethered(["/bin/bash", "-c", command], grace_s=_GRACE_S),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cwd,
        env={**kept, **env},
        start_new_session=True,
    )
    assert process.stdout is not None
    tail = bytearray()
    reading = asyncio.ensure_future(_read(process.stdout, tail))
    try:
        code = await process.wait()
    finally:
        await _end(process)
        await asyncio.wait((reading,), timeout=_GRACE_S)
        reading.cancel()
    output = tail.decode("utf-8", "replace").strip()
    return Exit(code=code if code >= 0 else 128 - code, output=output)


async def _read(output: asyncio.StreamReader, tail: bytearray) -> None:
    """Read all output, and keep its end."""
    while chunk := await output.read(1 << 16):
        tail += chunk
        del tail[:-_TAIL_BYTES]


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_GRACE_S + _KILL_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
