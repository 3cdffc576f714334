"""The host's side: SandboxFusion servers behind the `Sandbox` protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Self

import httpx

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.http import secret_of
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.carried.messages import Task, is_continued
from coding_model_project.sandbox.embedded.outcomes import syntax_error
from coding_model_project.sandbox.embedded.supervisor import check_contents
from coding_model_project.sandbox.fusion import capabilities, other_languages, wire
from coding_model_project.sandbox.fusion.endpoint import Unavailable, parsed
from coding_model_project.sandbox.fusion.fleet import Fleet, Send
from coding_model_project.sandbox.fusion.members import Discovery, Source
from coding_model_project.sandbox.fusion.packing import Packing, input_size
from coding_model_project.sandbox.languages import Language, named
from coding_model_project.sandbox.sandbox_config import RETRY_S
from coding_model_project.types import Execution, Input, Limits, Program, Status, Stdin

TOKEN_VARIABLE = "CODING_SANDBOX_TOKEN"
"""Environment variable with the servers' token, which is never in a configuration."""

_FIRST_BATCHES = (1, 4)
"""Inputs of the first requests if a failure ends a run: most failing programs fail the first input."""

_BATCH_BYTES = 8 << 20


class FusionSandbox:
    """A sandbox that runs programs on SandboxFusion servers, several per request where possible.

    This project's own server, `sandbox serve`, confines them. On others Python programs run below a
    driver that does so, and programs in other languages run unconfined, with one request per input. Use
    it from one event loop only.

    Args:
        urls: identical servers, or sources of their addresses (`members`); a failing one is avoided
            for a while.
        max_concurrency: maximum concurrent requests.
        timeout_s: seconds that a request may take beyond the limits of its programs.
        retry_s: seconds for which a failed request is retried.
        refresh_s: seconds between updates of the list of servers.
        ping_s: seconds within which a server that does not hang answers a ping.
        token: sent to the servers; default: the environment variable CODING_SANDBOX_TOKEN.
        transport: replaces the HTTP transport in tests.
    """

    def __init__(
        self,
        urls: Sequence[str | Source],
        *,
        max_concurrency: int = 32,
        timeout_s: float = 30.0,
        retry_s: float = RETRY_S,
        refresh_s: float = 5.0,
        ping_s: float = 5.0,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if max_concurrency < 1 or timeout_s <= 0 or retry_s < 0 or refresh_s <= 0:
            raise ConfigError(
                f"coding.sandbox: {max_concurrency=}, {timeout_s=}, {retry_s=}, {refresh_s=}: expected "
                "max_concurrency of at least 1, retry_s of at least 0, positive timeout_s and refresh_s"
            )
        self._max_concurrency = max_concurrency
        self._new_fleet = partial(
            Fleet,
            Discovery(urls),
            max_concurrency=max_concurrency,
            timeout_s=timeout_s,
            retry_s=retry_s,
            refresh_s=refresh_s,
            ping_s=ping_s,
            token=secret_of(TOKEN_VARIABLE, token),
            probe=self._learn,
            transport=transport,
        )
        self._facts: capabilities.Facts | None = None
        self._packing: Packing | None = None
        self._checked: dict[str, asyncio.Task[None]] = {}

    @property
    def identity(self) -> str:
        """Back end, tier and interpreter, such as "fusion/seccomp/cpython-3.10"; known once started.

        Raises:
            SandboxError: the sandbox is not started.
        """
        return f"fusion/{self._open().facts.identity}"

    async def __aenter__(self) -> Self:
        """Probe the servers.

        Raises:
            ConfigError: an address is not a SandboxFusion server's, or servers differ.
            SandboxError: no server can be reached.
        """
        self._facts, self._checked = None, {}
        fleet = self._new_fleet()
        try:
            await fleet.members.open()
        except BaseException:
            await fleet.close()
            raise
        assert self._facts is not None, "an open fleet has examined a server"
        self._packing = Packing(fleet, self._facts, self._max_concurrency)
        return self

    async def _learn(self, send: Send) -> None:
        facts = await capabilities.learn(send)
        if self._facts is None:
            self._facts = facts
        elif facts != self._facts:
            raise ConfigError(
                f"the servers in coding.sandbox.urls differ: {self._facts.identity} and "
                f"{facts.identity}; use identical ones, or verdicts depend on the server"
            )

    async def __aexit__(self, *_: object) -> None:
        """Close the connections; servers finish the programs that still run."""
        packing, self._packing = self._packing, None
        for task in self._checked.values():
            task.cancel()
        if packing is not None:
            await packing.close()
            await packing.fleet.close()

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        """Run a program as `Sandbox.run` does.

        Raises:
            SandboxError: the sandbox is not started, or the servers failed for `retry_s`.
            ConfigError: the servers have no toolchain for the language.
            DataError: the servers do not support an input.
        """
        self._open()
        if not inputs:
            return []
        executions: list[Execution] = []
        async for execution in self._executions(program, inputs, limits, stop_when is not None):
            executions.append(execution)
            if stop_when is not None and stop_when(len(executions) - 1, execution):
                break
        return executions

    async def _executions(
        self, program: Program, inputs: Sequence[Input], limits: Limits, may_stop: bool
    ):
        """Yield executions in order, requested in batches."""
        packing = self._open()
        facts = packing.facts
        if program.language != "python":
            language = await self._working(program.language)
            if not facts.takes_batches:
                for given in inputs:
                    yield await self._foreign(program, language, given, limits)
                return
            program = replace(program, language=language.name)
        check_contents(program, inputs, facts.tier)
        if not _encodable(program.source):
            for _ in inputs:
                yield syntax_error("the source is no UTF-8")
            return
        sizes = iter(_FIRST_BATCHES if may_stop else ())
        done = 0
        while done < len(inputs):
            portion = _portion(inputs[done:], next(sizes, len(inputs)))
            task = Task(
                program=program,
                inputs=tuple(portion),
                limits=limits,
                pauses=may_stop and facts.takes_batches,
            )
            for execution in await packing.run(task):
                done += 1
                yield execution

    async def _working(self, name: str) -> Language:
        """Return a language in which a trusted program has run.

        Raises:
            ConfigError: it is unknown, or does not run there.
            SandboxError: the servers failed.
        """
        language = named(name)
        if language.name not in self._checked:
            self._checked[language.name] = asyncio.ensure_future(self._check_language(language))
        await asyncio.shield(self._checked[language.name])
        return language

    async def _foreign(
        self,
        program: Program,
        language: Language,
        given: Input,
        limits: Limits,
        *,
        has_run: bool = True,
    ) -> Execution:
        """Run one input by the server's own runner.

        Args:
            has_run: whether a server is known to run the language.
        """
        packing = self._open()
        facts = packing.facts
        body = other_languages.ask(program, language, given, limits, facts)
        if not _encodable(program.source):
            return Execution(status=Status.compile_error, stderr_tail="the source is no UTF-8")

        def accept(data: bytes) -> Execution:
            response = parsed(data)
            if has_run and other_languages.lacks_toolchain(response):
                raise Unavailable(f"it has no toolchain for {language.name}, unlike another server")
            return other_languages.execution(response, limits, facts)

        run_s = limits.wall_s + other_languages.COMPILE_S
        return await packing.fleet.run(wire.RUN_CODE, body, run_s, accept)

    async def _check_language(self, language: Language) -> None:
        """Check that a trusted program in this language runs: later failures are the programs' own.

        Raises:
            ConfigError: it does not run.
            SandboxError: the servers failed.
        """
        limits, hello = (
            Limits(cpu_s=10.0, wall_s=20.0, memory_mb=1024),
            Program(source=language.hello),
        )
        try:
            tried = await self._foreign(hello, language, Stdin(""), limits, has_run=False)
            if tried.status is not Status.finished or tried.stdout.strip() != "hello":
                reason = (tried.stderr_tail.strip().splitlines() or [str(tried.status)])[-1][:200]
                raise ConfigError(f"the SandboxFusion server cannot run {language.name}: {reason}")
        except Exception:
            del self._checked[language.name]  # the next program checks again
            raise

    def _open(self) -> Packing:
        if self._packing is None:
            raise SandboxError("the sandbox is not started; use it as `async with`")
        return self._packing


def _portion(inputs: Sequence[Input], most: int) -> Sequence[Input]:
    """Return the first inputs for a request of reasonable size, at least one; asserts that share their
    state stay together."""
    size = n = 0
    for given in inputs[:most]:
        size += input_size(given)
        if n and size > _BATCH_BYTES:
            break
        n += 1
    while is_continued(inputs, n - 1):
        n += 1
    return inputs[:n]


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
