"""Limits on judging: a maximum concurrency, a stop when the sandbox is down, and a second chance.

A kill that a loaded machine may have caused is run again:

CPU time-out          the first one in a program gets 1.5 times the limit, once
wall, memory, SIGKILL  one retry without other programs; retries take at most 10% of the total judging
                      time, since a program can cause such kills at will
overload              one retry without other programs, whatever it takes: a program cannot make the
                      kernel run out of memory within its own limit, nor wait for a core that is free

The first line of a time-out's detail names the limit. Messages to a model leave it out (`without_limit`),
so that they depend only on what the program did.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from coding_model_project.errors import OverloadError, SandboxError
from coding_model_project.grading.base import timing_failures
from coding_model_project.sandbox.base import Queues, Sandbox, StopWhen
from coding_model_project.types import Execution, Input, Limits, Program, Status

_MOST_WAITING = 4096
"""Maximum number of programs in a sandbox with its own queue."""


class Limiter:
    """A first-come, first-served limiter for `at_once` concurrent programs, or one alone.

    Graders may share it. A caller of `alone` must not hold a place. It excludes only other users of this
    limiter, not other load on the machine, and nobody without `excludes`.
    """

    def __init__(self, at_once: int, *, excludes: bool = True) -> None:
        self._at_once, self._excludes = at_once, excludes
        self._places = asyncio.Semaphore(at_once)
        self._gate = asyncio.Lock()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold one of the places."""
        async with self._gate:
            await self._places.acquire()
        try:
            yield
        finally:
            self._places.release()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold all places, so that no other program runs."""
        if not self._excludes:
            async with self.shared():
                yield
            return
        async with self._gate, AsyncExitStack() as stack:
            for _ in range(self._at_once):
                await stack.enter_async_context(self._places)
            yield

    @asynccontextmanager
    async def alone_instead(self) -> AsyncIterator[None]:
        """Hold all places, for a caller that holds one; it gives that up until all others are free."""
        self._places.release()
        try:
            async with self.alone():
                yield
        finally:
            await self._places.acquire()


def limiter_of(sandbox: Sandbox, at_once: int) -> Limiter:
    """Return a limiter of `at_once` programs in a sandbox, which may limit them itself (`Queues`)."""
    if isinstance(sandbox, Queues):
        return Limiter(_MOST_WAITING, excludes=False)
    return Limiter(at_once)


class CircuitBreaker:
    """A breaker that stops judging when the sandbox has recently failed too often.

    Otherwise a partial outage biases measurements, since the judged samples are not a random subset.

    Args:
        window: the number of most recent outcomes considered.
        max_rate: the share of failures, in [0, 1], above which it opens.
        min_samples: the number of outcomes required before it may open.
    """

    def __init__(self, window: int = 200, max_rate: float = 0.2, min_samples: int = 20) -> None:
        self._outcomes: deque[bool] = deque(maxlen=window)
        self._max_rate = max_rate
        self._min_samples = min_samples
        self._open = False
        self._last_failure = ""

    @property
    def failure_rate(self) -> float:
        """The share of failures among recent outcomes; 0 before the first."""
        return self._outcomes.count(False) / max(1, len(self._outcomes))

    def record(self, failure: Exception | None = None) -> None:
        """Record whether the sandbox worked; it did, even if the program failed."""
        self._outcomes.append(failure is None)
        self._last_failure = str(failure) if failure else self._last_failure
        enough = len(self._outcomes) >= self._min_samples
        self._open = self._open or (enough and self.failure_rate > self._max_rate)

    def check(self) -> None:
        """Raise if the breaker is open.

        Raises:
            SandboxError: the breaker is open.
        """
        if self._open:
            raise SandboxError(
                f"infrastructure failure rate above {self._max_rate:.0%} over the last "
                f"{len(self._outcomes)} programs: judging stopped; the last failure: {self._last_failure}"
            )


CPU_GRACE = 1.5
"""Factor of the CPU limit for one execution of a program."""

_MAYBE_OURS = frozenset({Status.wall_timeout, Status.memory_limit, Status.killed})
"""Kills that a loaded machine can cause, unlike CPU time."""

_RERUN_BUDGET = 0.1
"""Maximum share of the judge's time for retries."""


class Retries:
    """A runner of programs in a sandbox, with a limiter, a breaker and retries.

    Args:
        limiter: the limiter held while a program is in the sandbox.
        breaker: the circuit breaker that ends judging when the sandbox keeps failing; None disables it.
    """

    def __init__(self, sandbox: Sandbox, limiter: Limiter, breaker: CircuitBreaker | None) -> None:
        self._sandbox = sandbox
        self._limiter = limiter
        self._breaker = breaker or CircuitBreaker(max_rate=1.0)
        self._judged_s = 0.0
        self._rerun_s = 0.0

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        stop: StopWhen | None,
    ) -> tuple[list[Execution], float]:
        """Return executions as in `Sandbox.run`, and the seconds that they took without waiting.

        Args:
            stop: `stop_when` of `Sandbox.run`; must depend only on its arguments.

        Raises:
            SandboxError: the sandbox failed, or the breaker is open.
            OverloadError: the machine ended the program, alone too.
        """
        try:
            async with self._limiter.shared():
                started = time.monotonic()
                with timing_failures():
                    executions = await self._with_grace(program, inputs, limits, stop)
                seconds = self._seconds(started, executions)
        except OverloadError:
            async with self._limiter.alone():
                started = time.monotonic()
                executions = await self._last_try(program, inputs, limits, stop)
                return executions, self._seconds(started, executions)
        self._judged_s += seconds
        first = next((i for i, e in enumerate(executions) if e.status in _MAYBE_OURS), None)
        if first is None or self._rerun_s > _RERUN_BUDGET * self._judged_s:
            return executions, seconds

        def again_or_stop(index: int, execution: Execution) -> bool:
            return execution.status in _MAYBE_OURS or (
                stop is not None and stop(first + index, execution)
            )

        async with self._limiter.alone():
            if self._rerun_s > _RERUN_BUDGET * self._judged_s:
                return executions, seconds
            started, again = time.monotonic(), []
            try:  # later inputs too, since the same load may have affected them
                again = await self._last_try(program, inputs[first:], limits, again_or_stop)
            finally:
                rerun_s = self._seconds(started, again)
                self._rerun_s += rerun_s
        return [*executions[:first], *again, *executions[first + len(again) :]], seconds + rerun_s

    def _seconds(self, started: float, executions: Sequence[Execution]) -> float:
        """Return the seconds of a run that has ended, without those that it waited in the sandbox."""
        if isinstance(self._sandbox, Queues):
            return sum(one.wall_s for one in executions)
        return time.monotonic() - started

    async def _last_try(
        self, program: Program, inputs: Sequence[Input], limits: Limits, stop: StopWhen | None
    ) -> list[Execution]:
        """Run alone; an overload is then a failure of the sandbox."""
        try:
            with timing_failures():
                return await self._with_grace(program, inputs, limits, stop)
        except OverloadError as error:
            self._breaker.record(error)
            raise

    async def _with_grace(
        self, program: Program, inputs: Sequence[Input], limits: Limits, stop: StopWhen | None
    ) -> list[Execution]:
        """Run with a larger CPU limit for the first execution that exceeds its own."""
        roomy = replace(limits, cpu_s=CPU_GRACE * limits.cpu_s)

        def over(execution: Execution) -> bool:
            return execution.status is Status.cpu_timeout or execution.cpu_s > limits.cpu_s

        if stop is None:
            executions = await self._run(program, inputs, limits, None)
            late = next((i for i, e in enumerate(executions) if over(e)), None)
            if late is not None:
                again = await self._run(program, inputs[late : late + 1], roomy, None)
                executions[late : late + 1] = again
            return executions
        executions = await self._run(program, inputs, roomy, lambda i, e: over(e) or stop(i, e))
        n = len(executions)
        if n < len(inputs) and not stop(n - 1, executions[-1]):
            executions += await self._run(program, inputs[n:], limits, lambda i, e: stop(n + i, e))
        return executions

    async def _run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        stop: StopWhen | None,
    ) -> list[Execution]:
        self._breaker.check()
        try:
            executions = await self._sandbox.run(program, inputs, limits, stop_when=stop)
            n = len(executions)
            stopped = stop is not None and n > 0 and stop(n - 1, executions[-1])
            if n < len(inputs) and not stopped:
                raise SandboxError(
                    f"{self._sandbox.identity} gave {n} answers for {len(inputs)} inputs"
                )
        except OverloadError:
            raise  # the program may yet run alone
        except SandboxError as error:
            self._breaker.record(error)
            raise
        self._breaker.record()
        return executions


_LINE = re.compile(
    r"\A(CPU time limit of \S+ s \(\S+ s for the first test that exceeds it\)|wall-clock limit of \S+ s)"
    r"(\n|\Z)"
)


def with_limit(detail: str, status: Status, limits: Limits) -> str:
    """Return the detail of an execution; of a time-out, with a first line that names the limit."""
    if status is Status.cpu_timeout:
        graced = f"{CPU_GRACE * limits.cpu_s:g} s for the first test that exceeds it"
        line = f"CPU time limit of {limits.cpu_s:g} s ({graced})"
    elif status is Status.wall_timeout:
        line = f"wall-clock limit of {limits.wall_s:g} s"
    else:
        return detail
    return f"{line}\n{detail}" if detail else line


def without_limit(detail: str) -> str:
    """Return a detail of a time-out without the line that names the limit."""
    return _LINE.sub("", detail, count=1)
