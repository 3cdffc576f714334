"""Runs inside a SandboxFusion server, as root or not: one program on a batch of inputs.

    D, this process: reads the request, holds its secret, prints the answer
      └ the embedded sandbox's zygote, forked before D knows anything
          └ a process per program ── a confined process per input

A server confines nothing, so the driver does, as strongly as it is told to. A program has neither
D's memory, nor its descriptors, nor the inputs to come.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import stat
import sys
import time
from pathlib import Path

from coding_model_project.errors import CodingModelError, SandboxError
from coding_model_project.isolation import linux
from coding_model_project.isolation.confine import Confinement, Tier
from coding_model_project.sandbox.embedded import frames, zygote
from coding_model_project.sandbox.embedded.slot import Slot, ZygoteLost
from coding_model_project.sandbox.fusion import driver_messages
from coding_model_project.types import Execution

_NOBODY = 65534
_START_S = 20.0


def main(tier: str) -> None:
    """Answer the request on standard input, each program confined at this tier.

    Raises:
        SandboxError: the tier does not work here.
    """
    del sys.meta_path[0], sys.path[0]  # the bundle's finder, and the server's folder
    slot = _InheritedSlot(Tier(tier), sys.executable)
    slot.start()
    linux.hide_memory()
    request = driver_messages.decode_request(sys.stdin.read())
    _print(
        driver_messages.encode_answer(
            _answer(slot, request, f"{tier}/cpython-{_version()}"), request.secret
        )
    )
    os._exit(0)  # the zygote ends with its channel


class _InheritedSlot(Slot):
    """A zygote forked from this process, which has its code already, and not started from files."""

    def start(self) -> None:
        """See `Slot.start`.

        Raises:
            SandboxError: the tier does not work here.
        """
        ours, theirs = socket.socketpair()
        host = os.getpid()
        if os.fork() == 0:
            ours.close()
            _become_zygote(host, theirs, self._tier)
        theirs.close()
        ours.settimeout(_START_S)
        try:
            head, _ = frames.receive(ours)
        except (OSError, EOFError, ValueError) as error:
            ours.close()
            raise SandboxError(f"tier {self._tier} does not work here ({error})") from error
        self._channel, self._ending = ours, False
        self.python_version = str(head["python"])


def _become_zygote(host: int, channel: socket.socket, tier: Tier) -> None:
    """Never returns: the zygote's process ends when its channel does."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        if tier is Tier.rlimit:
            _strengthen()
        os.environ["PYTHONPATH"] = ""
        arguments = [str(host), str(channel.detach()), tier.value, "", ""]
        sys.argv[:] = ["zygote", *arguments]
        if hasattr(sys, "set_int_max_str_digits"):
            sys.set_int_max_str_digits(0)
        zygote.main()
    except BaseException as error:  # noqa: BLE001 - no exception may return into D's frames
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(1)


def _strengthen() -> None:
    """At tier rlimit no file is closed: keep programs from D and from each other all the same.

    They have no capabilities, and cannot signal, trace or start processes. Where the server gave
    them root they lose that too, unless only root may read this Python.
    """
    linux.hide_memory()
    plain = zygote.prepare

    def prepare(tier: Tier) -> Confinement:
        confinement = dataclasses.replace(plain(tier), filter=linux.Filter.build())
        if os.getuid() == 0 and all(_open_to_others(path) for path in sys.path):
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        return confinement

    zygote.prepare = prepare


def _open_to_others(folder: str) -> bool:
    """Whether every user may import what lies in a folder; so too if there is no such folder."""
    path = Path(folder)
    if not path.exists():
        return True
    return all(
        step.stat().st_mode & stat.S_IXOTH for step in (path, *path.parents) if step.is_dir()
    )


def _answer(slot: Slot, request: driver_messages.Request, identity: str) -> driver_messages.Answer:
    executions: list[Execution] = []
    try:
        slot.run(
            request.program,
            request.inputs,
            request.limits,
            executions,
            driver_messages.within_budget(request, time.monotonic()),
        )
    except ZygoteLost as error:
        return driver_messages.Answer(identity=identity, error=("SandboxError", str(error)))
    except CodingModelError as error:
        return driver_messages.Answer(identity=identity, error=(type(error).__name__, str(error)))
    return driver_messages.Answer(identity=identity, executions=tuple(executions))


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _print(line: str) -> None:
    """On standard output if that carries it, else in a file to be fetched."""
    if len(line) > driver_messages.MAX_LINE:
        with open(driver_messages.ANSWER_FILE, "w") as file:
            file.write(line)
        return
    sys.stdout.write(line)
    sys.stdout.flush()
