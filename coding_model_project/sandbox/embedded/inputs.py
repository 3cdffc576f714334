"""One input of a program, run by P in the confined process T, with asserts also in a second one, A.

P must never hold the expected values of asserts: T is forked from P, so a program could find everything
in its memory that P ever had. Asserts therefore go from the host's channel to A without passing P's
memory (`frames.Exchange`).

A problem may say that one process answers its inputs, one after another (`Isolation.shared`): `Kept`.
For asserts they are the program's process and that of the trusted tests, which calls it; for calls, the
program's alone. A request is passed on after the answer to the one before it has come, so a program
never holds a later input. Every limit is that of one input. An input that ends the processes leaves new
ones to the next, so at worst each input costs what a process of its own would.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import types
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from coding_model_project.isolation.confine import Room, steps
from coding_model_project.sandbox.embedded import (
    asserts,
    fork_server,
    forked,
    frames,
    printed,
    run_program,
)
from coding_model_project.sandbox.embedded.forked import PROGRAM, TESTS, Compiled
from coding_model_project.sandbox.embedded.frames import Exchange
from coding_model_project.sandbox.embedded.printed import Outputs

if TYPE_CHECKING:
    import socket

_HEAD = 2
"""Most bytes of an answer before its value or result."""


class Kept:
    """The process of a program, and the one that takes requests: that of its tests, or the same."""

    def __init__(self, compiled: Compiled, head: frames.Head) -> None:
        """Start the processes for inputs of the head's kind."""
        self.compiled = compiled
        self.exchange = Exchange()
        self.outputs = Outputs.create(compiled.ready.limits, appending=True)
        self.entry_point: str | None = head.get("entry_point")
        null = os.open(os.devnull, os.O_RDWR)
        start = _start_tested if "entry_point" in head else _start_called
        # Process ids of the program, and of its tests or again of a program that is called without tests.
        self.program, self.answering = start(
            compiled, self.exchange, self.outputs, null, self.entry_point
        )
        self.exchange.begin()
        os.close(null)
        self.watch = forked.Watch(self.answering, self._proc)
        # CPU time of the processes since the last answer: threads that go on after it are not free.
        self.clock = forked.Clock(sorted({self.program, self.answering}))
        self.is_new, self.has_printed = True, False

    def takes(self, head: frames.Head) -> bool:
        """Return whether these processes are those that an input continues."""
        of_this_kind = ("entry_point" in head) is self.is_tested
        continues = of_this_kind and head.get("entry_point") == self.entry_point
        return continues and head["continues"] and self._are_idle

    @property
    def _are_idle(self) -> bool:
        """True if the processes wait for a request: they live, and sent nothing unasked."""
        return all(map(forked.lives, self.clock.pids)) and not self.exchange.has_answer()

    @property
    def is_tested(self) -> bool:
        """True if tests in their own process call the program."""
        return self.answering != self.program

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
        started = time.monotonic()
        killed: str | None = None

        def wait(descriptor: int, events: int) -> bool:
            nonlocal killed
            if killed is None:
                until = descriptor, events
                killed = self.watch.wait(
                    self.clock, started, cpu_s=cpu_s, wall_s=wall_s, until=until
                )
            return killed is None and (events == select.POLLIN or forked.lives(self.answering))

        if self.has_printed and not self.is_new:  # a new program may have printed already
            self.outputs.empty()
        was_new, answered, is_full = self.is_new, None, False
        self.is_new = False
        cap = self.compiled.ready.limits.output_kb << 10
        if self.exchange.request(channel, n, wait):
            answered, is_full = self.exchange.answer(wait, cap + _HEAD)
        spent_s = self.clock.spent_s(self.program)
        if killed is None and forked.has_too_many_threads(self.clock.pids, self._proc):
            killed = "threads"
        if answered and (killed or not self._is_answer(answered)):
            frames.wipe(answered)
            answered = None
        if killed is None:  # a process that closed its pipes may not have ended yet
            if not answered and not is_full:
                forked.await_end(self.answering)
            elif answered and answered.startswith(frames.LAST):
                forked.await_end(self.program)
        is_last = not keep or not answered or answered.startswith(frames.LAST)
        printed = self.outputs.sizes()
        is_full = is_full or max(*printed, len(answered or b"") - _HEAD) >= cap
        lives = not (is_last or is_full) and forked.lives(self.program)
        gave_none = answered is None and killed is None and not is_full
        is_unread = gave_none and not was_new and self.exchange.is_unread
        # Tests that call nothing may end before the program is confined and runs.
        is_early = bool(answered) and self.is_tested and forked.lives(self.program)
        code = 0 if lives else self._end(killed)
        if answered:
            del answered[:1]
            if not self.is_tested:
                code = answered[0]
                del answered[:1]
        ended = {
            "confined": is_early or self.compiled.confined[PROGRAM] == 1,
            "exit": code,
            "killed": killed,
            "cpu_s": spent_s,
            "wall_s": time.monotonic() - started,
            "full": is_full,
            "unread": is_unread,
        }
        if not lives:  # include what it wrote while it ended
            printed = self.outputs.sizes()
        self.has_printed = printed != (0, 0)
        self.outputs.send(channel, cap, ended, printed, answered or b"")
        if answered:
            frames.wipe(answered)
        if not lives:
            self.outputs.close()
            return False
        self.clock.restart()
        return True

    def close(self) -> None:
        """End the processes."""
        self._end()
        self.outputs.close()

    @property
    def _proc(self) -> int | None:
        return self.compiled.ready.confinement.proc

    def _is_answer(self, answered: bytearray) -> bool:
        """Return whether bytes have the form of an answer; those of a called program have two heads."""
        return answered.startswith((frames.MORE, frames.LAST)) and (
            self.is_tested or len(answered) > 1
        )

    def _end(self, killed: str | None = None) -> int:
        """End the processes; return the program's exit code, or 0 if it had to be killed.

        A SIGKILL of anybody else is the code, whichever of the processes it ended.

        Args:
            killed: the limit for which one was killed.
        """
        codes = {}
        for pid in {self.answering: None, self.program: None}:
            ours = killed is not None or forked.lives(pid)
            if ours:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            codes[pid] = 0 if ours and code == -signal.SIGKILL else code
        self.exchange.close()
        self.watch.close()
        if self.is_tested and not self.compiled.confined[TESTS]:
            raise RuntimeError("the tests could not be confined")  # ends P: not the program's fault
        is_killed = -signal.SIGKILL in codes.values()
        return -signal.SIGKILL if is_killed else codes[self.program]


def _start_called(
    compiled: Compiled, pipes: Exchange, outputs: Outputs, null: int, _: str | None
) -> tuple[int, int]:
    """Start the program, ready for calls; return its process id, which is also of what answers."""

    def of_program() -> NoReturn:
        run_program.run_calls(compiled.code)

    answers, requests = pipes.inner
    descriptors = [null, *outputs.descriptors[:2], requests, answers]
    program = forked.fork(compiled, compiled.ready.callee, descriptors, PROGRAM, of_program)
    return program, program


def _start_tested(
    compiled: Compiled, pipes: Exchange, outputs: Outputs, null: int, entry_point: str | None
) -> tuple[int, int]:
    """Start the program, and trusted tests that call it; return their process ids."""

    def of_program() -> NoReturn:
        run_program.run_callee(compiled.code)

    def of_tests() -> NoReturn:
        asserts.run(entry_point, compiled.ready.limits.output_kb << 10)

    to_tests, to_program = os.pipe(), os.pipe()
    descriptors = [null, *outputs.descriptors[:2], to_program[0], to_tests[1]]
    program = forked.fork(compiled, compiled.ready.callee, descriptors, PROGRAM, of_program)
    answers, *requests = pipes.inner
    descriptors = [null, null, null, answers, to_tests[0], to_program[1], *requests]
    tests = forked.fork(compiled, compiled.ready.tests, descriptors, TESTS, of_tests)
    for descriptor in (*to_tests, *to_program):
        os.close(descriptor)
    return program, tests


def of_test(code: types.CodeType, plan: fork_server.Plan, kind: int) -> NoReturn:
    """Run the program on its input, in a confined process that the compiled loop has forked.

    Args:
        kind: `fork_server.SCRIPT` or `CALL`.
    """
    if kind == fork_server.SCRIPT:
        run_program.run_script(code)
    run_program.run_call(code, fork_server.function(plan), fork_server.read_all(0))


def run(
    channel: socket.socket,
    compiled: Compiled,
    head: frames.Head,
    n: int,
    kept: Kept | None,
) -> Kept | None:
    """Run the program on an input, in the kind of process that the head names, and send the outcome.

    Args:
        n: bytes of the frame's body, which is still unread.
        kept: processes that have answered earlier inputs of the program.

    Returns:
        Processes that may answer more inputs.
    """
    if "continues" in head:
        return _run_kept(channel, compiled, head, n, kept)
    if kept is not None:  # nothing would watch it from here on
        kept.close()
    _run_once(channel, compiled, head, frames.receive_body(channel, n))
    return None


def _run_kept(
    channel: socket.socket, compiled: Compiled, head: frames.Head, n: int, kept: Kept | None
) -> Kept | None:
    """Have an input answered; only the process that answers it reads the frame's body."""
    if kept is not None and not kept.takes(head):
        kept.close()
        kept = None
    kept = kept or Kept(compiled, head)
    cpu_s, wall_s = head["within"]
    lives = kept.answer(channel, n, cpu_s=cpu_s, wall_s=wall_s, keep=head["keep"])
    return kept if lives else None


def _run_once(channel: socket.socket, compiled: Compiled, head: frames.Head, data: bytes) -> None:
    """Run the program on standard input, a call's arguments, or files, in a process of its own."""
    started = time.monotonic()
    ready, function, ways = compiled.ready, head.get("function"), compiled.ready.program
    given = printed.Given(paths=[], files={}, descriptors=[])
    if "arguments" in head:
        given = printed.argument_files(ready.confinement.tier, head, data)
        compiled = compiled._replace(files={**compiled.files, **given.files})
        room = Room.of({name: len(content) for name, content in compiled.files.items()})
        n_descriptors = printed.FIRST + len(given.descriptors)
        ways = steps(ready.confinement, ready.limits, n_descriptors, room)
    outputs = Outputs.create(ready.limits)
    stdin = printed.in_memory(b"" if function or given.paths else data)

    def body() -> NoReturn:
        sys.argv[1:] = given.paths
        if function is None:
            run_program.run_script(compiled.code)
        run_program.run_call(compiled.code, function, data)

    descriptors = [stdin, *outputs.descriptors, *given.descriptors]
    pid = forked.fork(compiled, ways, descriptors, PROGRAM, body)
    for descriptor in (stdin, *given.descriptors):
        os.close(descriptor)
    killed = forked.watch(pid, forked.Clock([pid]), ready.limits, ready.confinement.proc, started)
    _, status, usage = os.wait4(pid, 0)
    confined = compiled.confined[PROGRAM] == 1
    outputs.send_end(channel, ready.limits, confined, status, usage, killed, started)
