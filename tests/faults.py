"""Sandboxes that fail or wait on purpose, to be named in `coding.sandbox.name`."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from coding_model_project.errors import SandboxError
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Call, Execution, Input, Limits, Program


class Faulty(EmbeddedSandbox):
    """The embedded sandbox, but something happens before each program."""

    def __init__(self) -> None:
        super().__init__(workers=2)

    @abstractmethod
    async def before(self, program: Program, inputs: Sequence[Input]) -> None: ...

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        await self.before(program, inputs)
        return await super().run(program, inputs, limits, stop_when=stop_when)


class FailsOn(Faulty):
    """For programs that are called with one argument it always fails."""

    def __init__(self, argument: int) -> None:
        super().__init__()
        self._argument = argument

    async def before(self, program: Program, inputs: Sequence[Input]) -> None:
        if any(isinstance(given, Call) and given.args == (self._argument,) for given in inputs):
            raise SandboxError(f"made to fail on {self._argument}")


class FailsOften(Faulty):
    """Every n-th program of a process fails, and each from when a file is there."""

    def __init__(self, every: int, gone: str = "") -> None:
        super().__init__()
        self._every = every
        self._gone = gone
        self._n_programs = 0

    async def before(self, program: Program, inputs: Sequence[Input]) -> None:
        self._n_programs += 1
        if self._gone and Path(self._gone).exists():
            raise SandboxError("made to fail: the judge is gone")
        if self._n_programs % self._every == 0:
            raise SandboxError(f"made to fail on every program of {self._every}")


class Slow(Faulty):
    """Each program waits before its first run, any number of them at once."""

    def __init__(self, delay_s: float) -> None:
        super().__init__()
        self._delay_s = delay_s
        self._waited: set[str] = set()

    async def before(self, program: Program, inputs: Sequence[Input]) -> None:
        if program.source not in self._waited:
            self._waited.add(program.source)
            await asyncio.sleep(self._delay_s)
