"""The processes of a program and of the trusted tests that call it, kept while asserts continue.

They answer several asserts one after another if their problem says so (`Asserts.continues`).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from coding_model_project.sandbox.embedded import asserts, exchange, forked, run_program
from coding_model_project.sandbox.embedded.exchange import Exchange
from coding_model_project.sandbox.embedded.forked import PROGRAM, TESTS, Compiled
from coding_model_project.sandbox.embedded.printed import Outputs


@dataclass(slots=True)
class Kept:
    """The process of a program, and that of the tests, which takes requests."""

    compiled: Compiled
    exchange: Exchange
    outputs: Outputs
    program: int
    """Process id of the program."""
    tests: int
    """Process id of the tests."""
    entry_point: str | None
    watch: forked.Watch
    """Watcher of the tests' process."""
    is_new: bool = True

    @classmethod
    def start(cls, compiled: Compiled, entry_point: str | None) -> Kept:
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
        return cls(compiled, pipes, outputs, program, tests, entry_point, watch)

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
        killed: str | None = None

        def wait(descriptor: int, events: int) -> bool:
            nonlocal killed
            if killed is None:
                until = descriptor, events
                killed = self.watch.wait(clock, started, cpu_s=cpu_s, wall_s=wall_s, until=until)
            return killed is None and (events == select.POLLIN or forked.lives(self.tests))

        if not was_new:  # a new program may have printed already
            self.outputs.empty()
        answered, cap = None, self.compiled.ready.limits.output_kb << 10
        if self.exchange.request(channel, n, wait):
            answered = self.exchange.answer(wait, cap)
        spent_s = clock.spent_s(self.program)
        if killed is None and forked.has_too_many_threads(self._processes, self._proc):
            killed = "threads"
        if answered and (killed or not answered.startswith((asserts.MORE, asserts.LAST))):
            exchange.wipe(answered)
            answered = None
        if killed is None:  # a process that closed its pipes may not have ended yet
            if not answered:
                forked.await_end(self.tests)
            elif answered.startswith(asserts.LAST):
                forked.await_end(self.program)
        is_last = not keep or not answered or answered.startswith(asserts.LAST)
        printed = self.outputs.sizes()
        is_full = max(*printed, len(answered or b"")) >= cap
        lives = not (is_last or is_full) and forked.lives(self.program)
        if answered:
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
        return lives

    def close(self) -> None:
        """End the processes."""
        self._end()
        self.outputs.close()

    @property
    def _proc(self) -> int | None:
        return self.compiled.ready.confinement.proc

    @property
    def _processes(self) -> tuple[int, int]:
        return self.program, self.tests

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
        if not self.compiled.confined[TESTS]:
            raise RuntimeError("the tests could not be confined")  # ends P: not the program's fault
        return -signal.SIGKILL if -signal.SIGKILL in codes else codes[-1]
