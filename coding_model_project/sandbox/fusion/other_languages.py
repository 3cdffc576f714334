"""Languages other than Python, run by the servers' own runners with one request per input.

The server limits only wall time, and memory where that does not break the language. So CPU time is not
measured, and no status distinguishes a memory kill from a crash.

`WithServers` is the embedded sandbox, with servers for the languages that this machine lacks.
"""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Literal, Self

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.sandbox.fusion import wire
from coding_model_project.sandbox.fusion.capabilities import Facts
from coding_model_project.sandbox.fusion.endpoint import Unavailable
from coding_model_project.sandbox.languages import LANGUAGES, Language, named
from coding_model_project.types import STDERR_TAIL, Execution, Input, Limits, Program, Status, Stdin

if TYPE_CHECKING:
    from coding_model_project.sandbox.fusion import FusionSandbox

_CARRIED = 128 << 10
"""Most bytes of standard output that a server that truncates output returns whole."""

COMPILE_S = 30.0


def _name(language: Language, facts: Facts) -> str:
    """Return a language's name on servers.

    Raises:
        ConfigError: they do not run it.
    """
    if language.on_servers is None and not facts.takes_batches:
        known = [one.name for one in LANGUAGES.values() if one.on_servers]
        raise ConfigError(
            f"language={language}: SandboxFusion servers run python, {', '.join(known)}"
        )
    return language.on_servers or language.name


def ask(
    program: Program, language: Language, given: Input, limits: Limits, facts: Facts
) -> wire.Body:
    """Return the body of a request that runs a program on one input.

    Raises:
        DataError: the input is not standard input.
    """
    if not isinstance(given, Stdin):
        raise DataError(f"{type(given).__name__} inputs are for python, not {program.language!r}")
    limited = not (language.many_threads and facts.memory_limits_stack)
    return wire.run_code(
        program.source,
        _name(language, facts),
        stdin=given.text.encode("utf-8", "replace").decode(),
        run_s=limits.wall_s,
        compile_s=COMPILE_S,
        memory_mb=limits.memory_mb if limited else None,
        files={name: base64.b64encode(data).decode() for name, data in program.files.items()},
    )


def lacks_toolchain(response: wire.RunCodeResponse) -> bool:
    """Return whether the server cannot run the language; no program can make its answer say so."""
    compiled = response.compile_result
    missing = compiled is not None and compiled.return_code == wire.TOOLCHAIN_MISSING
    return missing or response.message.startswith(wire.NO_TOOLCHAIN)


def execution(response: wire.RunCodeResponse, limits: Limits, facts: Facts) -> Execution:
    """Return a program's execution.

    Raises:
        Unavailable: the server failed, not the program.
    """
    compiled, ran = response.compile_result, response.run_result
    if compiled is not None and (compiled.status != "Finished" or compiled.return_code != 0):
        killed = compiled.return_code == -signal.SIGKILL
        return Execution(
            status=Status.killed if killed else Status.compile_error,
            stderr_tail=(compiled.stderr or compiled.stdout or compiled.status)[-STDERR_TAIL:],
            exit_code=_exit_code(compiled),
            wall_s=compiled.execution_time or 0.0,
        )
    if response.status == wire.SANDBOX_ERROR or ran is None:
        raise Unavailable(response.message[:200] or f"{response.status}, and nothing ran")
    stdout, allowed = ran.stdout or "", limits.output_kb << 10
    size = len(stdout.encode("utf-8", "replace"))
    return Execution(
        status=_status(
            ran, full=size >= (min(allowed, _CARRIED) if facts.cuts_output else allowed)
        ),
        stdout=stdout[:allowed],
        stderr_tail=(ran.stderr or "")[-STDERR_TAIL:],
        exit_code=_exit_code(ran),
        wall_s=ran.execution_time or 0.0,
    )


def _status(ran: wire.PhaseResult, *, full: bool) -> Status:
    if full:
        return Status.output_limit
    if ran.return_code is None:
        return Status.wall_timeout
    if ran.return_code == -signal.SIGKILL:
        return Status.killed
    if ran.return_code < 0:
        return Status.signalled
    return Status.raised if ran.return_code else Status.finished


def _exit_code(phase: wire.PhaseResult) -> int | None:
    return phase.return_code if phase.return_code is not None and phase.return_code >= 0 else None


class WithServers:
    """A sandbox that runs programs here, and on servers those in languages that do not run here.

    The servers are probed at the first such program, so a run without any needs none.
    """

    shares_calls: Literal[True] = True

    def __init__(self, here: EmbeddedSandbox, servers: FusionSandbox) -> None:
        self._here, self._servers = here, servers
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._started = False

    @property
    def identity(self) -> str:
        """The identity of the embedded sandbox; see `identity_of`."""
        return self._here.identity

    def identity_of(self, language: str) -> str:
        """Return the identity of the sandbox that has run programs in a language."""
        elsewhere = self._started and self._lacks(language)
        return (self._servers if elsewhere else self._here).identity

    async def __aenter__(self) -> Self:
        """Start the embedded sandbox; raises as it does."""
        await self._stack.enter_async_context(self._here)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._started = False
        await self._stack.aclose()

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        """Run a program as `Sandbox.run` does; raises as the sandbox that runs it."""
        if not self._lacks(program.language):
            return await self._here.run(program, inputs, limits, stop_when=stop_when)
        async with self._starting:
            if not self._started:
                await self._stack.enter_async_context(self._servers)
                self._started = True
        return await self._servers.run(program, inputs, limits, stop_when=stop_when)

    def _lacks(self, language: str) -> bool:
        if language == "python":
            return False
        one = named(language)
        return one.on_servers is not None and bool(toolchains.why_not(one.name, self._here.tier))
