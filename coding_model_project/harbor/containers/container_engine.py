"""A client of a container engine's command line: docker or podman, which accept the same arguments."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.environment.output import Kept
from coding_model_project.isolation.tether import tethered

_GRACE_S = 2.0
"""Seconds that a tethered client has to end."""

_ANSWER_S = 120.0
"""Timeout of the engine's own operations in wall seconds."""

_PODMANS_LIMITS = (
    ("nofile", resource.RLIMIT_NOFILE, 1 << 20),
    ("nproc", resource.RLIMIT_NPROC, 1 << 15),  # podman's own default
)
"""Limits that podman sets in a container, with their maximum values."""

_SHOWN_CHARS = 600
_MANY_BYTES = 1 << 20

_REGISTRIES = "CONTAINERS_REGISTRIES_CONF"
"""Variable with podman's file of registries. As installed, podman knows only some images without one."""

_UNREACHABLE = re.compile(
    r"dial tcp|no such host|server misbehaving|i/o timeout|TLS handshake|deadline exceeded|"
    r"Client\.Timeout|connection (?:refused|reset)|unexpected EOF|EOF$|toomanyrequests|"
    r"too many requests|unexpected HTTP status: 5\d\d|service unavailable|bad gateway",
    re.IGNORECASE,
)
"""Reasons why podman and docker got no answer from a registry, in the words of Go's network library."""

_OF_A_COMMAND = re.compile(r"while running runtime|did not complete successfully|exit status \d")
"""Errors of a Dockerfile's RUN, which may name anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A running call of the engine."""

    process: Process
    stdout: Kept
    stderr: Kept
    ended: asyncio.Task[int]
    """Task that returns its exit code."""


class Engine:
    """A client of a container engine.

    Args:
        program: docker, podman, or a program with the same arguments.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self._path = program
        self._folder = TemporaryDirectory(prefix="engine-")
        """Its working directory, in which podman's monitor leaves a file if memory runs out."""
        self._env = dict(os.environ)

    @property
    def limits(self) -> list[str]:
        """Arguments of `run` and `build` that keep containers within this process's own limits.

        By default podman, whose containers are children of its caller, raises both limits. That needs a
        capability that root in a container or virtual machine often lacks.
        """
        if self.program != "podman":
            return []
        words: list[str] = []
        for name, kind, maximum in _PODMANS_LIMITS:
            hard = resource.getrlimit(kind)[1]
            n = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
            words += ["--ulimit", f"{name}={n}:{n}"]
        return words

    async def find(self) -> None:
        """Find the program, and check that its engine responds.

        Raises:
            EnvironmentFailed: there is no such program, or its engine does not respond.
        """
        way_out = "; choose another engine, or rooms, which need none"
        found = shutil.which(self.program)
        if found is None:
            raise EnvironmentFailed(f"{self.program} is not installed here{way_out}")
        self._path = found
        try:
            await self.ask("ps", "--quiet")
        except EnvironmentFailed as error:
            raise EnvironmentFailed(f"no container engine responds: {error}{way_out}") from error
        if self.program == "podman":
            await self._search_docker_hub()

    async def _search_docker_hub(self) -> None:
        """Have podman read `FROM owner/image` as docker does, unless this machine has registries."""
        if _REGISTRIES in os.environ:
            return
        _, out, _ = await self.run("info", "--format", "{{json .Registries}}")
        if out.strip() == b"{}":
            path = Path(self._folder.name, "registries.conf")
            path.write_text('unqualified-search-registries = ["docker.io"]\n')
            self._env[_REGISTRIES] = str(path)

    async def ask(
        self, *arguments: str, stdin: bytes | None = None, timeout_s: float = _ANSWER_S
    ) -> str:
        """Run a command of the engine, and return its output.

        Raises:
            EnvironmentFailed: it failed or timed out; the message has its output.
        """
        code, out, err = await self.run(
            *arguments, stdin=stdin, timeout_s=timeout_s, max_output=_MANY_BYTES
        )
        if code != 0:
            raise self._failed(arguments[0], code, err or out)
        return out.decode("utf-8", "replace").strip()

    async def detach(self, *arguments: str, timeout_s: float = _ANSWER_S) -> None:
        """Start something that keeps running. Uses no pipes, since its monitor may keep them open.

        Raises:
            EnvironmentFailed: it failed or timed out; the message has its output.
        """
        with TemporaryFile() as output:
            process = await self._spawn([self._path, *arguments], stdout=output, stderr=output)
            try:
                code = await asyncio.wait_for(process.wait(), timeout_s)
            except TimeoutError as error:
                raise self._late(arguments[0], timeout_s) from error
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        process.kill()
            if code != 0:
                output.seek(0)
                raise self._failed(arguments[0], code, output.read(_MANY_BYTES))

    async def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        timeout_s: float = _ANSWER_S,
        max_output: int = _MANY_BYTES,
        tether: bool = False,
    ) -> tuple[int, bytes, bytes]:
        """Run a command of the engine; return its exit code, standard output and standard error.

        Args:
            tether: as for `calling`.

        Raises:
            EnvironmentFailed: it timed out.
        """
        async with self.calling(
            *arguments, stdin=stdin, max_output=max_output, tether=tether
        ) as call:
            try:
                code = await asyncio.wait_for(asyncio.shield(call.ended), timeout_s)
            except TimeoutError as error:
                raise self._late(arguments[0], timeout_s) from error
            return code, call.stdout.take()[0], call.stderr.take()[0]

    @asynccontextmanager
    async def calling(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        max_output: int = _MANY_BYTES,
        tether: bool = False,
    ) -> AsyncIterator[Call]:
        """Start a call of the engine; on exit, kill the engine's client if it still runs.

        Args:
            tether: end also what the client started, and end it with this process, whatever ends that:
                podman builds in processes of its own, where docker's service does.

        Raises:
            OSError, ValueError: the kernel rejects the arguments.
        """
        words = [self._path, *arguments]
        process = await self._spawn(
            tethered(words, grace_s=_GRACE_S) if tether else words,
            stdin=DEVNULL if stdin is None else PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
        out, err = Kept(max_output), Kept(max_output)
        ended = asyncio.ensure_future(_to_the_end(process, stdin, out, err))
        try:
            yield Call(process=process, stdout=out, stderr=err, ended=ended)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate() if tether else process.kill()
            await ended

    async def _spawn(
        self, words: Sequence[str], *, stdin: int = DEVNULL, stdout: Any, stderr: Any
    ) -> Process:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=self._folder.name,
            env=self._env,
            start_new_session=True,
        )

    def _late(self, command: str, timeout_s: float) -> EnvironmentFailed:
        return EnvironmentFailed(f"{self.program} {command} did not end within {timeout_s:.0f} s")

    def _failed(self, command: str, code: int, output: bytes) -> EnvironmentFailed:
        why = one_line(output) or f"exit code {code}"
        return EnvironmentFailed(f"{self.program} {command}: {why}")


def is_unreachable(output: bytes) -> bool:
    """Return whether a failed `build` or `pull` got no answer from a registry.

    That is an outage. A registry that answers that it has no such image, or a command of the Dockerfile
    that fails, is not.
    """
    lines = output.decode("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return bool(_UNREACHABLE.search(last.strip())) and not _OF_A_COMMAND.search(last)


def one_line(output: bytes) -> str:
    """Return the end of an engine's output on one line."""
    return " ".join(output.decode("utf-8", "replace").split())[-_SHOWN_CHARS:]


async def _to_the_end(process: Process, stdin: bytes | None, out: Kept, err: Kept) -> int:
    assert process.stdout is not None and process.stderr is not None
    reading = (_read(process.stdout, out), _read(process.stderr, err))
    await asyncio.gather(*reading, _write(process, stdin))
    return await process.wait()


async def _read(stream: asyncio.StreamReader, kept: Kept) -> None:
    while chunk := await stream.read(1 << 16):
        kept.add(chunk)


async def _write(process: Process, content: bytes | None) -> None:
    if process.stdin is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended first, and prints the reason
        process.stdin.write(content or b"")
        await process.stdin.drain()
    process.stdin.close()
