"""The embedded sandbox, with SandboxFusion servers for the languages that this machine lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Literal, Self

from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.sandbox.fusion import FusionSandbox
from coding_model_project.sandbox.languages import named
from coding_model_project.types import Execution, Input, Limits, Program


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
