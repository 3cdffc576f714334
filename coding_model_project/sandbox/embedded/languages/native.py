"""The process that starts programs in other languages, as `zygote` does for Python.

    zygote (this module, single-threaded; knows no language)
      └ P, one per program: has it compiled or checked by its recipe
          ├ one process per stage: confined, executes the compiler
          └ T, one per input: confined, executes the program

Except at profile "shell", only this code starts processes: a compiler's stages are executed one by one.
`foreign` starts it as `-m …native HOST_PID FD TIER SETUP`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import platform
import socket
import sys
import time
from dataclasses import dataclass, replace

from coding_model_project.isolation import confine, linux
from coding_model_project.isolation.confine import PROC, Limits, Tier
from coding_model_project.sandbox.embedded import frames, launch, printed
from coding_model_project.sandbox.embedded.languages import stages
from coding_model_project.sandbox.embedded.launch import Place, Profile
from coding_model_project.sandbox.embedded.printed import Outputs
from coding_model_project.sandbox.embedded.zygote import end_orphans, forget_the_host, last_words

_FEWEST_IDS = 301
"""The lowest limit that the kernel accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Zygote:
    """Settings shared by all programs here."""

    refusal: str
    """Reason why no program may run; empty if they may."""
    run: Place
    stage: Place
    """Place of the stages, in a folder of the host; at tier namespaces in /tmp, which each P mounts."""


def main() -> None:
    host, descriptor, tier, setup = sys.argv[1:]
    channel = socket.socket(fileno=linux.lowest(int(descriptor)))
    linux.end_with(int(host))
    zygote = _prepare(Tier(tier), json.loads(setup))
    linux.adopt_orphans()
    forget_the_host()
    gc.collect()
    gc.freeze()
    frames.send(channel, {"ready": True, "python": platform.python_version()})
    me = os.getpid()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            head, body = frames.receive(channel)
            pid = os.fork()
            if pid == 0:
                _program(me, channel, zygote, head, body)
            _, status = os.waitpid(pid, 0)
            end_orphans()
            frames.send(channel, {"done": os.waitstatus_to_exitcode(status)})


def _prepare(tier: Tier, setup: frames.Head) -> _Zygote:
    """Enter the tier.

    Raises:
        OSError: this machine does not allow it.
    """
    profile, folder = Profile(setup["profile"]), setup["folder"]
    wants_proc = tier is Tier.namespaces and profile is not Profile.native
    readable = [*setup["readable"], *([PROC] if wants_proc else [])]
    confinement = confine.prepare(tier, readable, profile.granted)
    own_proc = wants_proc and _can_mount_proc(confinement.namespaces)
    if wants_proc and not own_proc:
        linux.unmount(PROC)
    landlock = None
    if confinement.landlock is not None:
        allowed = [*confine.READABLE, *readable, folder]
        landlock = linux.landlock_ruleset(
            linux.landlock_abi(), allowed, writable=["/dev/null", folder]
        )
    run = Place(confinement=confinement, profile=profile, files={}, own_proc=own_proc)
    stage_folder = "/tmp" if tier is Tier.namespaces else folder
    stage = replace(run, folder=stage_folder, landlock=landlock)
    refusal = ""
    if profile is Profile.shell and not _bounds_processes(confinement.namespaces):
        refusal = (
            "nothing here limits the number of their processes (this needs Linux 6.14 and /proc)"
        )
    return _Zygote(refusal=refusal, run=run, stage=stage)


def _bounds_processes(namespaces: int) -> bool:
    """Return whether the kernel stops a process that forks too often, by forking 301 times."""
    pid = linux.fork(namespaces)
    if pid == 0:
        with contextlib.suppress(BaseException):
            launch.bound_processes(_FEWEST_IDS)
            _fork_often()
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _fork_often() -> None:
    """End this process with code 0 once a fork is refused; return otherwise."""
    for _ in range(_FEWEST_IDS):  # unreaped, each keeps its id
        try:
            child = os.fork()
        except BlockingIOError:
            os._exit(0)
        if child == 0:
            os._exit(0)


def _can_mount_proc(namespaces: int) -> bool:
    pid = linux.fork(namespaces)
    if pid == 0:
        with contextlib.suppress(BaseException):
            launch.mount_proc()
            os._exit(0)
        os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


# ── P ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A program that can be run."""

    place: Place
    limits: Limits
    """The program's limits, plus its runtime's overhead."""
    files: dict[str, bytes]
    confined: mmap.mmap
    executable: str | int
    arguments: list[str]
    source: tuple[str, bytes] | None
    """Name and content of the file that an interpreter or VM reads, named in the arguments; None for a
    program that is itself executed."""


def _program(
    parent: int, channel: socket.socket, zygote: _Zygote, head: frames.Head, body: bytes
) -> None:
    """Prepare one program and run its inputs; ends the process."""
    with last_words():
        linux.end_with(parent)
        linux.hide_memory()
        try:
            ready = _ready(channel, zygote, head, body)
        except (OSError, RuntimeError) as error:  # the host retries once, then reports it
            frames.send(channel, {"broken": f"{type(error).__name__}: {error}"})
            raise
        while ready is not None:
            head, data = frames.receive(channel)
            if "end" in head:
                break
            _run(channel, ready, head, data)


def _ready(
    channel: socket.socket, zygote: _Zygote, head: frames.Head, body: bytes
) -> _Ready | None:
    """Prepare the program, and send whether it can run; return None if it cannot."""
    if zygote.refusal:
        frames.send(channel, {"refused": zygote.refusal})
        return None
    files = dict(zip(head["files"], frames.parts(body, head["sizes"]), strict=True))
    product: bytes | None = files.pop(head["product"]) if head["made"] else None
    confined = mmap.mmap(-1, 1)
    if product is not None:
        frames.send(channel, {"compiled": True})
    else:
        product = stages.make(channel, zygote.stage, head, files, confined)
        if product is None:
            return None
    limits = Limits(**head["limits"])
    executable: str | int = head["run"][0]
    source: tuple[str, bytes] | None = None
    if executable == head["product"]:
        executable = _executable(product, zygote.run.confinement.proc)
        files.pop(head["source"], None)
    elif head["product"]:
        source = head["product"], product
        files.pop(head["source"], None)
        files[head["product"]] = product
    else:
        source = head["source"], files[head["source"]]
    namespaces = zygote.run.confinement.tier is Tier.namespaces
    return _Ready(
        place=zygote.run,
        limits=limits._replace(memory_mb=limits.memory_mb + head["overhead_mb"]),
        files=files if namespaces else {},
        confined=confined,
        executable=executable,
        arguments=head["run"],
        source=source,
    )


def _executable(content: bytes, proc: int | None) -> int:
    """Return a descriptor of an in-memory file without writers, as execution requires."""
    writable = printed.in_memory(content)
    fd = os.open(f"{os.getpid()}/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    os.close(writable)
    return fd


# ── T ─────────────────────────────────────────────────────────────────────────────────────────────


def _run(channel: socket.socket, ready: _Ready, head: frames.Head, data: bytes) -> None:
    """Run the program on one input, and send the outcome."""
    started = time.monotonic()
    tier, limits = ready.place.confinement.tier, ready.limits
    words, files = list(ready.arguments), dict(ready.files)
    given = []
    if "arguments" in head:
        on_files = printed.argument_files(tier, head, data)
        words += on_files.paths
        files.update(on_files.files)
        given += on_files.descriptors
        data = b""
    outputs = Outputs.create(limits)
    stdin = printed.in_memory(data)
    descriptors = [stdin, *outputs.descriptors, *given]
    if ready.source is not None and tier is not Tier.namespaces:
        name, content = ready.source
        words[words.index(name)] = f"/dev/fd/{len(descriptors)}"
        given.append(printed.in_memory(content))
        descriptors.append(given[-1])
    place = replace(ready.place, files=files)
    pid = launch.start(place, ready.executable, words, limits, descriptors, ready.confined)
    for fd in (stdin, *given):
        os.close(fd)
    killed = launch.watch(pid, place, limits, started, outputs.descriptors)
    _, status, usage = os.wait4(pid, 0)
    if killed is None and launch.ran_out_of_memory(status, usage, outputs.err, limits):
        killed = "memory"
    confined = ready.confined[0] == 1
    outputs.send_end(channel, limits, confined, status, usage, killed, started)


if __name__ == "__main__":
    main()
