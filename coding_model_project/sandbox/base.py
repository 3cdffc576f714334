"""The one thing every sandbox does: run a program on inputs and return its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from coding_model_project.types import Execution, Input, Limits, Program

StopWhen = Callable[[int, Execution], bool]
"""Given an input's index and its execution: stop here? Runs on the host, which may compare."""


class Sandbox(Protocol):
    """Runs programs; knows nothing of problems, expected outputs or rewards.

    An async context manager: entering starts it, leaving stops every process it started.
    `sandbox.conformance` holds what every implementation must do.
    """

    @property
    def identity(self) -> str:
        """Back end, tier and interpreter, e.g. "embedded/seccomp/cpython-3.11".

        Part of every verdict and cache key.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        """Run `program` once per input, in order, as if each were in a fresh process.

        Asserts that `continues` are the exception: they see the state that the ones before them left.
        Stops after the first answer for which `stop_when` holds. Safe to call concurrently.

        Returns:
            One Execution per input that ran. A program that crashes, hangs or lies is an Execution.

        Raises:
            SandboxError: after retries, only when the sandbox itself could not do its work.
        """
        ...
