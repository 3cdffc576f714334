"""One input of a program, run by P in the confined process T, with asserts also in a second one, A.

P must never hold the expected values of asserts: T is forked from P, so a program could find everything
in its memory that P ever had. Asserts therefore go from the host's channel to A without passing P's
memory (`exchange`).
"""

from __future__ import annotations

import os
import sys
import time
import types
from typing import TYPE_CHECKING, Any, NoReturn

from coding_model_project.isolation.confine import Room, steps
from coding_model_project.sandbox.embedded import (
    argument_files,
    fork_server,
    forked,
    frames,
    run_program,
)
from coding_model_project.sandbox.embedded.forked import PROGRAM, Compiled
from coding_model_project.sandbox.embedded.kept import Kept
from coding_model_project.sandbox.embedded.printed import Outputs

if TYPE_CHECKING:
    import socket


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
        kept = None
    data = frames.receive_body(channel, n)
    if "arguments" in head:
        tier = compiled.ready.confinement.tier
        _run_on_files(channel, compiled, argument_files.given(tier, head, data))
    else:
        _run_program(channel, compiled, head.get("function"), data)
    return kept


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


def _run_program(
    channel: socket.socket, compiled: Compiled, function: str | None, data: bytes
) -> None:
    started = time.monotonic()
    ready = compiled.ready
    outputs = Outputs.create(ready.limits)
    stdin = argument_files.in_memory(data if function is None else b"")

    def body() -> NoReturn:
        if function is None:
            run_program.run_script(compiled.code)
        run_program.run_call(compiled.code, function, data)

    pid = forked.fork(compiled, ready.program, [stdin, *outputs.descriptors], PROGRAM, body)
    killed = forked.watch(pid, forked.Clock([pid]), ready.limits, ready.confinement.proc, started)
    _, status, usage = os.wait4(pid, 0)
    os.close(stdin)
    _send(channel, compiled, outputs, status, usage, killed, started)


def _run_on_files(channel: socket.socket, compiled: Compiled, given: argument_files.Given) -> None:
    started = time.monotonic()
    outputs = Outputs.create(compiled.ready.limits)
    null = os.open("/dev/null", os.O_RDONLY)

    def body() -> NoReturn:
        sys.argv[1:] = given.paths
        run_program.run_script(compiled.code)

    descriptors = [null, *outputs.descriptors, *given.descriptors]
    compiled = compiled._replace(files={**compiled.files, **given.files})
    room = Room.of({name: len(content) for name, content in compiled.files.items()})
    ready = compiled.ready
    ways = steps(ready.confinement, ready.limits, len(descriptors), room)
    pid = forked.fork(compiled, ways, descriptors, PROGRAM, body)
    for fd in (null, *given.descriptors):
        os.close(fd)
    killed = forked.watch(pid, forked.Clock([pid]), ready.limits, ready.confinement.proc, started)
    _, status, usage = os.wait4(pid, 0)
    _send(channel, compiled, outputs, status, usage, killed, started)


def _send(
    channel: socket.socket,
    compiled: Compiled,
    outputs: Outputs,
    status: int,
    usage: Any,
    killed: str | None,
    started: float,
) -> None:
    confined = compiled.confined[PROGRAM] == 1
    outputs.send(channel, compiled.ready.limits, confined, status, usage, killed, started)
