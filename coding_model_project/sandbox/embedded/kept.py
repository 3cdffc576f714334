"""Processes of a program that are kept to answer several inputs.

There are two kinds: a program that keeps no state between its inputs (`fast_path`), and asserts that run
one after another in the same pair of processes because their problem says so (`Asserts.continues`).
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from coding_model_project.sandbox.embedded import asserts, exchange, forked, run_program
from coding_model_project.sandbox.embedded.exchange import Exchange
from coding_model_project.sandbox.embedded.forked import PROGRAM, TESTS, Compiled
from coding_model_project.sandbox.embedded.printed import Outputs

if TYPE_CHECKING:
    from coding_model_project.sandbox.embedded.exchange import Wait

Purpose = tuple[str, str | None]
"""The kind of inputs ("calls", "scripts" or "asserts"), and the function to call or entry point."""


@dataclass(slots=True)
class Kept:
    """The process of a program, for asserts also the process of its tests, and their purpose."""

    compiled: Compiled
    exchange: Exchange
    outputs: Outputs
    program: int
    """Process id of the program."""
    answering: int
    """Id of the process that takes requests: the program's, or its tests'."""
    purpose: Purpose
    watch: forked.Watch
    """Watcher of the process that takes requests."""
    run_since: float = 0.0
    """Arrival, on the monotonic clock, of the first input of the current batch."""
    is_new: bool = True

    @classmethod
    def of(cls, compiled: Compiled, purpose: Purpose) -> Kept:
        """Start the processes for a purpose."""
        match purpose:
            case "calls", str(function):
                return cls._of_program(
                    compiled, purpose, lambda: run_program.run_calls(compiled.code, function)
                )
            case "scripts", _:
                return cls._of_program(
                    compiled, purpose, lambda: run_program.run_scripts(compiled.code)
                )
            case _, entry_point:
                return cls._of_asserts(compiled, purpose, entry_point)

    @classmethod
    def _of_program(
        cls, compiled: Compiled, purpose: Purpose, body: Callable[[], NoReturn]
    ) -> Kept:
        pipes, outputs = Exchange(), Outputs.create(appending=True)
        null = os.open(os.devnull, os.O_RDONLY)
        descriptors = [null, *outputs.descriptors[:2], *pipes.inner]
        pid = forked.fork(compiled, compiled.ready.kept, descriptors, PROGRAM, body)
        pipes.begin()
        os.close(null)
        watch = forked.Watch(pid, compiled.ready.confinement.proc)
        return cls(compiled, pipes, outputs, pid, pid, purpose, watch)

    @classmethod
    def _of_asserts(cls, compiled: Compiled, purpose: Purpose, entry_point: str | None) -> Kept:
        """Start the program, ready to be called, and a process for trusted tests that call it."""
        pipes, outputs = Exchange(), Outputs.create(appending=True)
        null = os.open(os.devnull, os.O_RDWR)
        to_tests, to_program = os.pipe(), os.pipe()

        def of_program() -> NoReturn:
            run_program.run_callee(compiled.code)

        def of_tests() -> NoReturn:
            asserts.run(entry_point, compiled.ready.limits.output_kb << 10)

        descriptors = [null, *outputs.descriptors[:2], to_program[0], to_tests[1]]
        program = forked.fork(compiled, compiled.ready.callee, descriptors, PROGRAM, of_program)
        answers, *requests = pipes.inner
        descriptors = [null, null, null, answers, to_tests[0], to_program[1], *requests]
        tests = forked.fork(compiled, compiled.ready.tests, descriptors, TESTS, of_tests)
        pipes.begin()
        for descriptor in (null, *to_tests, *to_program):
            os.close(descriptor)
        watch = forked.Watch(tests, compiled.ready.confinement.proc)
        return cls(compiled, pipes, outputs, program, tests, purpose, watch)

    def answer(
        self, channel: socket.socket, n: int, *, cpu_s: float, wall_s: float, keep: bool
    ) -> bool:
        """Have the channel's next `n` bytes answered, and send the outcome to the host.

        Args:
            cpu_s: limit of this input.
            wall_s: limit of this input.
            keep: keep the processes afterwards, if they have not ended.

        Returns:
            Whether the processes are kept.
        """
        started, was_new, self.is_new = time.monotonic(), self.is_new, False
        clock = forked.Clock(self._processes, new=was_new)
        within_s = min(cpu_s, self._cpu_left_s())
        killed: str | None = None

        def wait(descriptor: int, events: int) -> bool:
            nonlocal killed
            if killed is None:
                until = descriptor, events
                killed = self.watch.wait(clock, started, cpu_s=within_s, wall_s=wall_s, until=until)
            return killed is None and (events == select.POLLIN or forked.lives(self.answering))

        answered, cap = None, self.compiled.ready.limits.output_kb << 10
        is_ready = self._is_ready(wait, was_new=was_new)
        if self.exchange.request(channel, n, wait if is_ready else None):
            answered = self.exchange.answer(wait, cap)
        spent_s = clock.spent_s(self.program)
        if killed is None and self._cpu_left_s() < 0:
            killed = "cpu"
        if killed is None and forked.has_too_many_threads(self._processes, self._proc):
            killed = "threads"
        if answered and (killed or not self._is_answer(answered)):
            exchange.wipe(answered)
            answered = None
        if killed is None:  # a process that closed its pipes may not have ended yet
            if not answered:
                forked.await_end(self.answering)
            elif self._has_tests and answered.startswith(asserts.LAST):
                forked.await_end(self.program)
        is_last = not keep or not answered or answered.startswith(asserts.LAST)
        printed = self.outputs.sizes()
        is_full = max(*printed, len(answered or b"")) >= cap  # the input then runs again on its own
        lives = not (is_last or is_full) and forked.lives(self.program)
        if answered and self._has_tests:
            del answered[:1]
        ended = {
            "confined": self.compiled.confined[PROGRAM] == 1,
            "exit": 0 if lives else self._end(killed),
            "killed": killed,
            "cpu_s": spent_s,
            "wall_s": time.monotonic() - started,
        }
        if not lives:  # include what it wrote while it ended
            printed = self.outputs.sizes()
        self.outputs.send_answer(channel, cap, ended, printed, answered or b"")
        if answered:
            exchange.wipe(answered)
        if not lives:
            self.outputs.close()
        elif any(printed):  # output from here on is unrequested
            self.outputs.empty()
        return lives

    def _cpu_left_s(self) -> float:
        """Return the CPU seconds that the process has left; each assert has its own limit instead.

        All inputs of a process share the time of one: a program gains nothing by carrying work over.
        """
        if self._has_tests:
            return math.inf
        return self.compiled.ready.limits.cpu_s - forked.Clock([self.program]).spent_s(self.program)

    def _is_answer(self, answered: bytearray) -> bool:
        """Return whether an answer has the right form."""
        match self.purpose:
            case "asserts", _:
                return answered.startswith((asserts.MORE, asserts.LAST))
            case "calls", _:
                return answered.startswith((b"=", b"!"))
            case _:
                return answered.isdigit() and len(answered) <= 3 and int(answered) < 256

    def close(self) -> None:
        """End the processes."""
        self._end()
        self.outputs.close()

    @property
    def _proc(self) -> int | None:
        return self.compiled.ready.confinement.proc

    @property
    def _has_tests(self) -> bool:
        return self.answering != self.program

    @property
    def _processes(self) -> Sequence[int]:
        return [self.program, self.answering] if self._has_tests else [self.program]

    def _is_ready(self, wait: Wait, *, was_new: bool) -> bool:
        """Return whether a program has sent and printed nothing unrequested; tests are trusted."""
        if self._has_tests:
            if not was_new:  # a new program may have printed already
                self.outputs.empty()
            return True
        if not was_new:
            return self.exchange.is_silent() and self.outputs.are_empty()
        return self.exchange.answer(wait, 0) == run_program.READY and self.exchange.is_silent()

    def _end(self, killed: str | None = None) -> int:
        """End the processes; return the program's exit code, or 0 if it had to be killed.

        A SIGKILL of anybody else is the code, whichever of the processes it ended.

        Args:
            killed: the limit for which one was killed.
        """
        codes = []
        for pid in reversed(self._processes):
            ours = killed is not None or forked.lives(pid)
            if ours:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            codes.append(0 if ours and code == -signal.SIGKILL else code)
        self.exchange.close()
        self.watch.close()
        if self._has_tests and not self.compiled.confined[TESTS]:
            raise RuntimeError("the tests could not be confined")  # ends P: not the program's fault
        return -signal.SIGKILL if -signal.SIGKILL in codes else codes[-1]
