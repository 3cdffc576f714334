"""Sandboxes that fail on purpose, to be named in `coding.sandbox.name`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coding_model_project.errors import SandboxError
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Call, Execution, Input, Limits, Program


class FailsOn(EmbeddedSandbox):
    """The embedded sandbox, but for programs that are called with one argument it always fails."""

    def __init__(self, argument: int) -> None:
        super().__init__(workers=2)
        self._argument = argument

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        if any(isinstance(given, Call) and given.args == (self._argument,) for given in inputs):
            raise SandboxError(f"made to fail on {self._argument}")
        return await super().run(program, inputs, limits, stop_when=stop_when)


class FailsOften(EmbeddedSandbox):
    """The embedded sandbox, but each so many-th program of a process fails."""

    def __init__(self, every: int) -> None:
        super().__init__(workers=2)
        self._every = every
        self._n_programs = 0

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        self._n_programs += 1
        if self._n_programs % self._every == 0:
            raise SandboxError(f"made to fail on every program of {self._every}")
        return await super().run(program, inputs, limits, stop_when=stop_when)


class Slow(EmbeddedSandbox):
    """The embedded sandbox, but each program waits before its first run, any number of them at once."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(workers=2)
        self._delay_s = delay_s
        self._waited: set[str] = set()

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        if program.source not in self._waited:
            self._waited.add(program.source)
            await asyncio.sleep(self._delay_s)
        return await super().run(program, inputs, limits, stop_when=stop_when)
