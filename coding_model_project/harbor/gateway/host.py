"""Agents on this machine: a process with all it starts, which is gone when its time is over."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.isolation import tether
from coding_model_project.isolation.processes import TOKEN, carriers

MARK = "CODING_AGENT_TOKEN"
"""Environment variable by which all that an agent starts is found."""

_INHERITED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", TOKEN),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
"""Of this process's environment, what an agent gets: no credentials of the training's."""

_GRACE_S = 2.0
_SWEEPS = 20
_SAID = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How an agent ended."""

    code: int
    """128 and the signal's number if one ended it."""
    said: str
    """The end of what it printed."""


class HostProcess:
    """A command of this machine, in a session of its own. Made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str, output: int) -> None:
        self._process, self._mark, self._output = process, mark, output
        self._said = bytearray()
        self._read_all = asyncio.Event()
        # Not by the process's own transport: its `wait` waits for whoever holds the output, too.
        asyncio.get_running_loop().add_reader(output, self._read)

    @classmethod
    async def start(cls, command: str, *, cwd: Path, env: Mapping[str, str]) -> HostProcess:
        """Start it; it ends with this process at the latest.

        Args:
            env: beside the few variables that it gets of this process's.

        Raises:
            OSError: it cannot be started.
        """
        mark = secrets.token_hex(8)
        kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        tethered = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid())]
        ours, theirs = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(theirs, True)
        try:
            process = await asyncio.create_subprocess_exec(
                *tethered,
                *("/bin/bash", "-c", command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                cwd=cwd,
                env={**kept, **env, MARK: mark},
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(process, mark, ours)

    async def wait(self) -> Exit:
        """Wait for its end."""
        code = await self._process.wait()
        with suppress(TimeoutError):  # what it left behind may hold its output open
            async with asyncio.timeout(_GRACE_S):
                await self._read_all.wait()
        said = bytes(self._said).decode("utf-8", "replace").strip()
        return Exit(code=code if code >= 0 else 128 - code, said=said)

    async def end(self) -> None:
        """End it and all it started: SIGTERM first, SIGKILL after a moment. May be repeated."""
        if self._process.returncode is None:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await self._process.wait()
        self._signal(signal.SIGKILL)
        await self._process.wait()
        for _ in range(_SWEEPS):  # a process may have forked while it was looked for
            pids = await asyncio.to_thread(carriers, self._mark, MARK)
            if not pids:
                break
            for pid in pids:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.02)
        if self._output >= 0:
            asyncio.get_running_loop().remove_reader(self._output)
            os.close(self._output)
            self._output = -1

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _read(self) -> None:
        try:
            chunk = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._output)
            self._read_all.set()
        self._said += chunk
        del self._said[:-_SAID]
