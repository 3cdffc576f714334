"""The protocol of every sandbox: run a program on inputs and return its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self, runtime_checkable

from coding_model_project.types import Execution, Input, Limits, Program

StopWhen = Callable[[int, Execution], bool]
"""Returns whether to stop after an input, given its index and execution. Runs on the host, so it may
compare with expected outputs."""


class Sandbox(Protocol):
    """A runner of programs that knows nothing of problems, expected outputs or rewards.

    It is an async context manager: entering starts it, leaving stops every process it started.
    `sandbox.conformance` tests what every implementation must do.
    """

    @property
    def identity(self) -> str:
        """Back end, tier and interpreter, such as "embedded/seccomp/cpython-3.11".

        It is part of every verdict and cache key.
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
        """Run `program` once per input, in order, as if each ran in a fresh process.

        Exception: Asserts with `continues` see the state of the Asserts before them, and so do Calls
        in a sandbox of type `SharesCalls`. The run stops after the first input for which `stop_when`
        returns true. Safe to call concurrently.

        Returns:
            One Execution per input that ran. A program that crashes, hangs or lies is an Execution.

        Raises:
            SandboxError: after retries, and only if the sandbox itself failed.
        """
        ...


@runtime_checkable
class SharesCalls(Protocol):
    """A sandbox that runs a `Call` with `continues` in the process of the calls before it.

    Others run it in a fresh process, and verdicts say so.
    """

    shares_calls: Literal[True]


@runtime_checkable
class Queues(Protocol):
    """A sandbox of several machines with one queue, in which any number of programs may wait.

    No program can run there without others. The seconds of a program are those of its executions.
    """

    queues: Literal[True]


@runtime_checkable
class RunsElsewhere(Protocol):
    """A sandbox that runs some languages in another sandbox, which their verdicts name."""

    def identity_of(self, language: str) -> str:
        """Return the identity of the sandbox that has run programs in a language."""
        ...


def identity_of(sandbox: Sandbox, language: str) -> str:
    """Return the identity of the sandbox that has run programs in a language."""
    is_split = isinstance(sandbox, RunsElsewhere)
    return sandbox.identity_of(language) if is_split else sandbox.identity
