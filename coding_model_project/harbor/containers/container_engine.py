"""A container engine by its command line: docker and podman, which take the same words."""

from __future__ import annotations

import asyncio
import resource
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory, TemporaryFile

from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.environment.output import Kept

_ANSWER_S = 120.0
"""Wall seconds for what the engine does by itself."""

_PODMANS_LIMITS = (
    ("nofile", resource.RLIMIT_NOFILE, 1 << 20),
    ("nproc", resource.RLIMIT_NPROC, 1 << 15),  # podman's own, by which it runs itself
)
"""Limits that podman sets in a container, and the most that they may be."""

_SAID = 600
_MANY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of the engine that goes on."""

    process: Process
    stdout: Kept
    stderr: Kept
    ended: asyncio.Task[int]
    """Its exit code."""


class Engine:
    """
    Args:
        program: docker or podman, or a program that takes what they take.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self._path = program
        self._folder = TemporaryDirectory(prefix="engine-")
        """Where it runs: podman's monitor leaves a file where it was started when memory runs out."""

    @property
    def limits(self) -> list[str]:
        """Words for `run` and `build` by which containers keep within this process's own limits.

        podman, whose containers are children of its caller, would raise both, which takes a capability
        that root in a container or virtual machine often lacks.
        """
        if self.program != "podman":
            return []
        words: list[str] = []
        for name, kind, most in _PODMANS_LIMITS:
            hard = resource.getrlimit(kind)[1]
            n = most if hard == resource.RLIM_INFINITY else min(most, hard)
            words += ["--ulimit", f"{name}={n}:{n}"]
        return words

    async def find(self) -> None:
        """Raises:
        EnvironmentFailed: there is no such program, or nothing answers it.
        """
        way_out = "; choose another engine, or rooms, which needs none"
        found = shutil.which(self.program)
        if found is None:
            raise EnvironmentFailed(f"{self.program} is not installed here{way_out}")
        self._path = found
        try:
            await self.ask("ps", "--quiet")
        except EnvironmentFailed as error:
            raise EnvironmentFailed(f"no container engine answers: {error}{way_out}") from error

    async def ask(
        self, *arguments: str, stdin: bytes | None = None, timeout_s: float = _ANSWER_S
    ) -> str:
        """What it prints.

        Raises:
            EnvironmentFailed: it fails, or does not answer in time; says what it says.
        """
        code, out, err = await self.run(
            *arguments, stdin=stdin, timeout_s=timeout_s, max_output=_MANY_BYTES
        )
        if code != 0:
            said = " ".join((err or out).decode("utf-8", "replace").split())[-_SAID:]
            raise EnvironmentFailed(f"{self.program} {arguments[0]}: {said or f'exit code {code}'}")
        return out.decode("utf-8", "replace").strip()

    async def detach(self, *arguments: str, timeout_s: float = _ANSWER_S) -> None:
        """Have something started that goes on: its monitor may keep what it inherits, pipes too.

        Raises:
            EnvironmentFailed: it fails, or does not answer in time; says what it says.
        """
        with TemporaryFile() as said:
            process = await asyncio.create_subprocess_exec(
                self._path,
                *arguments,
                stdin=DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self._folder.name,
                start_new_session=True,
            )
            try:
                code = await asyncio.wait_for(process.wait(), timeout_s)
            except TimeoutError as error:
                raise EnvironmentFailed(
                    f"{self.program} {arguments[0]} did not end within {timeout_s:.0f} s"
                ) from error
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        process.kill()
            if code != 0:
                said.seek(0)
                why = " ".join(said.read(_MANY_BYTES).decode("utf-8", "replace").split())[-_SAID:]
                raise EnvironmentFailed(
                    f"{self.program} {arguments[0]}: {why or f'exit code {code}'}"
                )

    async def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        timeout_s: float = _ANSWER_S,
        max_output: int = _MANY_BYTES,
    ) -> tuple[int, bytes, bytes]:
        """Exit code, standard output, standard error.

        Raises:
            EnvironmentFailed: it does not answer in time.
        """
        async with self.calling(*arguments, stdin=stdin, max_output=max_output) as call:
            try:
                code = await asyncio.wait_for(asyncio.shield(call.ended), timeout_s)
            except TimeoutError as error:
                raise EnvironmentFailed(
                    f"{self.program} {arguments[0]} did not end within {timeout_s:.0f} s"
                ) from error
            return code, call.stdout.take()[0], call.stderr.take()[0]

    @asynccontextmanager
    async def calling(
        self, *arguments: str, stdin: bytes | None = None, max_output: int = _MANY_BYTES
    ) -> AsyncIterator[Call]:
        """A call in progress; on leaving, the engine's client is killed if it goes on.

        Raises:
            OSError, ValueError: no kernel takes the arguments.
        """
        process = await asyncio.create_subprocess_exec(
            self._path,
            *arguments,
            stdin=DEVNULL if stdin is None else PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=self._folder.name,
            start_new_session=True,
        )
        out, err = Kept(max_output), Kept(max_output)
        ended = asyncio.ensure_future(_to_the_end(process, stdin, out, err))
        try:
            yield Call(process=process, stdout=out, stderr=err, ended=ended)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
            await ended


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
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended first, and says why itself
        process.stdin.write(content or b"")
        await process.stdin.drain()
    process.stdin.close()
