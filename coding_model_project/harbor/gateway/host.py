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


class HostProcess:
    """A command on this machine, tethered to this process (`isolation.tether`). Made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process, output: int) -> None:
        self._process, self._output = process, output
        self._tail = bytearray()
        self._read_all = asyncio.Event()
        asyncio.get_running_loop().add_reader(output, self._read)

    @classmethod
    async def start(cls, command: str, *, cwd: Path, env: Mapping[str, str]) -> HostProcess:
        """Start the command; it ends with this process at the latest.

        Args:
            env: variables in addition to the few inherited ones.

        Raises:
            OSError: it cannot be started.
        """
        kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(ours, False)
        try:
            process = await asyncio.create_subprocess_exec(
                *tethered(["/bin/bash", "-c", command], grace_s=_GRACE_S),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                cwd=cwd,
                env={**kept, **env},
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(process, ours)

    async def wait(self) -> Exit:
        """Wait until it and all its descendants end."""
        code = await self._process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._read_all.wait()
        output = bytes(self._tail).decode("utf-8", "replace").strip()
        return Exit(code=code if code >= 0 else 128 - code, output=output)

    async def end(self) -> None:
        """End it and its descendants: SIGTERM first, then SIGKILL. May be called again."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(_GRACE_S + _KILL_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._output >= 0:
            asyncio.get_running_loop().remove_reader(self._output)
            os.close(self._output)
            self._output = -1

    def _read(self) -> None:
        try:
            chunk = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._output)
            self._read_all.set()
        self._tail += chunk
        del self._tail[:-_TAIL_BYTES]
