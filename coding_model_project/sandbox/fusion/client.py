"""The host's side: SandboxFusion servers behind the `Sandbox` protocol."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Self

import httpx

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded.outcomes import syntax_error
from coding_model_project.sandbox.embedded.supervisor import check_contents
from coding_model_project.sandbox.fusion import capabilities, other_languages
from coding_model_project.sandbox.fusion.discovery import Discovery
from coding_model_project.sandbox.fusion.driver_messages import Task, is_continued
from coding_model_project.sandbox.fusion.fleet import Fleet
from coding_model_project.sandbox.fusion.packing import Packing, input_size
from coding_model_project.types import (
    Execution,
    Input,
    Limits,
    Program,
    Status,
    Stdin,
)

TOKEN_VARIABLE = "CODING_SANDBOX_TOKEN"
"""Environment variable with the token that servers ask for; never in a configuration."""

_FIRST_BATCHES = (1, 4)
"""Inputs of the first requests where a failure ends a run: most programs that fail fail the first."""

_BATCH_BYTES = 8 << 20
_NOT_STARTED = "the sandbox is not started; use it as `async with`"


class FusionSandbox:
    """Runs programs on SandboxFusion servers, several per request where that is possible.

    Python programs run below a driver that confines them, since a server does not; other languages
    run as the server runs them, one request per input. To be used from one event loop.

    Args:
        urls: servers that are alike, or what names them (`discovery`); one that fails is avoided for a
            while.
        max_concurrency: requests at once.
        timeout_s: how much longer than the programs in it a request may take.
        retry_s: how long a request is tried again before it fails.
        refresh_s: seconds between looks for servers that come and go.
        token: sent to the servers; by default the environment's CODING_SANDBOX_TOKEN.
        transport: for tests.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        max_concurrency: int = 32,
        timeout_s: float = 30.0,
        retry_s: float = 180.0,
        refresh_s: float = 5.0,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if max_concurrency < 1 or timeout_s <= 0 or retry_s < 0 or refresh_s <= 0:
            raise ConfigError(
                "coding.sandbox: max_concurrency, timeout_s, retry_s and refresh_s are positive"
            )
        self._discovery = Discovery(urls)
        self._max_concurrency = max_concurrency
        self._timeout_s, self._retry_s, self._refresh_s = timeout_s, retry_s, refresh_s
        self._token = token if token is not None else os.environ.get(TOKEN_VARIABLE)
        self._transport = transport
        self._fleet: Fleet | None = None
        self._facts: capabilities.Facts | None = None
        self._packing: Packing | None = None
        self._spoken: dict[str, asyncio.Task[None]] = {}

    @property
    def identity(self) -> str:
        """E.g. "fusion/seccomp/cpython-3.10"; known once started.

        Raises:
            SandboxError: not started.
        """
        return f"fusion/{self._known().identity}"

    async def __aenter__(self) -> Self:
        """Probe the servers.

        Raises:
            ConfigError: an address is not that of a SandboxFusion, or its servers differ.
            SandboxError: none can be reached.
        """
        self._facts, self._spoken = None, {}
        self._fleet = Fleet(
            self._discovery,
            max_concurrency=self._max_concurrency,
            timeout_s=self._timeout_s,
            retry_s=self._retry_s,
            refresh_s=self._refresh_s,
            token=self._token,
            probe=self._learn,
            transport=self._transport,
        )
        try:
            await self._fleet.open()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self._packing = Packing(self._fleet, self._known(), self._max_concurrency)
        return self

    async def _learn(self, send: capabilities.Send) -> None:
        facts = await capabilities.learn(send)
        if self._facts is None:
            self._facts = facts
        elif facts != self._facts:
            raise ConfigError(
                f"the servers in coding.sandbox.urls differ: {self._facts.identity} and "
                f"{facts.identity}; verdicts would depend on which one judged"
            )

    async def __aexit__(self, *_: object) -> None:
        """Close the connections; servers end what they still run."""
        fleet, self._fleet = self._fleet, None
        packing, self._packing = self._packing, None
        if packing is not None:
            await packing.close()
        for task in self._spoken.values():
            task.cancel()
        if fleet is not None:
            await fleet.close()

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        """See `Sandbox.run`. Also:

        Raises:
            ConfigError: a language without a toolchain there.
            DataError: an input that the servers cannot give.
        """
        self._known()
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
        """Executions in order, asked for in batches."""
        if program.language != "python":
            async for execution in self._foreign(program, inputs, limits):
                yield execution
            return
        check_contents(program, inputs, self._known().tier)
        try:
            program.source.encode()
        except UnicodeEncodeError as error:
            for _ in inputs:
                yield syntax_error(str(error))
            return
        sizes = iter(_FIRST_BATCHES if may_stop else ())
        done = 0
        while done < len(inputs):
            portion = _portion(inputs[done:], next(sizes, len(inputs)))
            task = Task(program=program, inputs=tuple(portion), limits=limits)
            for execution in await self._open_packing().run(task):
                done += 1
                yield execution

    async def _foreign(self, program: Program, inputs: Sequence[Input], limits: Limits):
        facts, fleet = self._known(), self._open()
        spoken = other_languages.language(program.language)
        if spoken.name not in self._spoken:
            self._spoken[spoken.name] = asyncio.ensure_future(self._check_language(spoken))
        await asyncio.shield(self._spoken[spoken.name])
        for given in inputs:
            body = other_languages.ask(program, spoken, given, limits, facts)
            if not _encodable(program.source):
                yield Execution(status=Status.compile_error, stderr_tail="the source is no UTF-8")
                continue
            run_s = limits.wall_s + other_languages.COMPILE_S
            yield await fleet.run(
                body, run_s, lambda r: other_languages.execution(r, limits, facts)
            )

    async def _check_language(self, spoken: other_languages.Language) -> None:
        """That a program in this language runs there: later, a failure is the program's own.

        Raises:
            ConfigError: it does not.
        """
        facts, limits = self._known(), Limits(cpu_s=10.0, wall_s=20.0, memory_mb=1024)
        body = other_languages.ask(Program(source=spoken.hello), spoken, Stdin(""), limits, facts)
        said = await self._open().run(
            body,
            limits.wall_s + other_languages.COMPILE_S,
            lambda r: other_languages.execution(r, limits, facts),
        )
        if said.status is not Status.finished or said.stdout.strip() != "hello":
            del self._spoken[spoken.name]  # the next program asks anew
            reason = (said.stderr_tail.strip().splitlines() or [str(said.status)])[-1][:200]
            raise ConfigError(f"the SandboxFusion server cannot run {spoken.name}: {reason}")

    def _known(self) -> capabilities.Facts:
        if self._facts is None or self._fleet is None:
            raise SandboxError(_NOT_STARTED)
        return self._facts

    def _open_packing(self) -> Packing:
        if self._packing is None:
            raise SandboxError(_NOT_STARTED)
        return self._packing

    def _open(self) -> Fleet:
        if self._fleet is None:
            raise SandboxError(_NOT_STARTED)
        return self._fleet


def _portion(inputs: Sequence[Input], most: int) -> Sequence[Input]:
    """The first inputs that make a request of reasonable size, at least one; asserts that share their
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
