"""Confined processes that execute another program instead of running Python."""

from __future__ import annotations

import mmap
import os
import platform
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from coding_model_project.isolation import confine, linux, proc_files, seccomp
from coding_model_project.isolation.confine import Confinement, Limits, Tier
from coding_model_project.sandbox.embedded import forked
from coding_model_project.sandbox.embedded.fork_server import MAX_THREADS

_AS_MARGIN = 64 << 20
"""Bytes of address space above the memory limit: code, arenas, guard pages."""

_DATA_MARGIN = 1 << 30
"""Bytes that a runtime may map for writing above its memory limit, used or not."""

_MAX_PROCESSES = 64
"""Most processes of a program: it is killed at the next sample that finds more."""

_MAX_IDS = 400
"""The kernel's limit on process ids of a program's namespace."""

_PAGE = resource.getpagesize()
_TICKS = os.sysconf("SC_CLK_TCK")

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "OPENSSL_CONF": "/dev/null",  # node requires a readable file
}


class Profile(StrEnum):
    """Kinds of programs, which differ in their system calls and in how memory is measured."""

    native = "native"
    """One process. Memory is its address space, an exact limit; the stack may use all of it."""
    runtime = "runtime"
    """One process that reserves much more than it uses. Memory is its resident private memory, sampled
    every 5 ms; a hard limit on writable mappings is 1 GiB higher."""
    shell = "shell"
    """Many processes, which end with the PID namespace of the first. Memory is the sum of their resident
    memory, sampled every 5 ms; each also has a limit on its address space."""

    @property
    def granted(self) -> dict[str, str]:
        """System calls beyond those of Python programs."""
        return seccomp.MANY_PROCESSES if self is Profile.shell else seccomp.ONE_EXEC

    @property
    def sample_s(self) -> float:
        """Seconds between two samples of its usage."""
        return 0.05 if self is Profile.native else 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The confinement, files and folder of a command."""

    confinement: Confinement
    profile: Profile
    files: dict[str, bytes]
    """Files to write into its own folder (tier namespaces), unless `folder` is set."""
    folder: str | None = None
    """Existing working directory."""
    landlock: int | None = None
    """Descriptor of Landlock rules that replace the confinement's."""
    own_proc: bool = False
    """True to mount a /proc that shows only its own processes."""


def start(
    place: Place,
    executable: str | int,
    words: Sequence[str],
    limits: Limits,
    descriptors: Sequence[int],
    confined: mmap.mmap,
) -> int:
    """Start a confined process and return its id; it sets `confined[0]` once it is confined.

    Args:
        executable: path or descriptor of the file to execute.
        words: its arguments, starting with the program's name.
    """
    confined[0] = 0
    pid = linux.fork(place.confinement.namespaces)
    if pid:
        return pid
    try:
        if isinstance(executable, str):
            executable = os.open(executable, os.O_RDONLY)
        rules = place.confinement.landlock if place.landlock is None else place.landlock
        landlock = _arrange(descriptors, rules, executable)
        linux.die_with_parent().make()
        if place.profile is Profile.shell:
            bound_processes(_MAX_IDS)
        if place.own_proc:
            mount_proc()
        if place.folder is not None:
            os.chdir(place.folder)
        elif place.confinement.tier is Tier.namespaces:
            room = confine.Room.of({name: len(data) for name, data in place.files.items()})
            _make(confine.scratch(room))
            confine.write_files(place.files)
        else:
            os.chdir("/")
        _limit_memory(place.profile, limits)
        _make(confine.common_limits(limits))
        for kind in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
            signal.signal(kind, signal.SIG_DFL)
        confined[0] = 1
        _make(confine.sealing(place.confinement, landlock))
        if place.confinement.filter is not None:
            place.confinement.filter.install()
        linux.execute(seccomp.EXEC_FD, words, ENVIRONMENT)
    except BaseException:  # noqa: BLE001 - not confined or not executed: not the program's fault
        confined[0] = 0
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _arrange(descriptors: Sequence[int], rules: int | None, executable: int) -> int | None:
    """Move descriptors to 0, 1, 2, …, then the Landlock rules, and the executable to `EXEC_FD`; close all
    others. Return the number of the rules."""
    kept = [*descriptors, *([rules] if rules is not None else [])]
    high = [os.dup2(fd, confine.FIRST_KEPT + i) for i, fd in enumerate(kept)]
    os.dup2(executable, seccomp.EXEC_FD, inheritable=False)
    for i, fd in enumerate(high):
        os.dup2(fd, i)
    linux.close_from(len(kept), seccomp.EXEC_FD - 1).make()
    linux.close_from(seccomp.EXEC_FD + 1).make()
    return len(descriptors) if rules is not None else None


def _make(calls: Sequence[linux.SystemCall]) -> None:
    for call in calls:
        call.make()


def mount_proc() -> None:
    """Mount a /proc over the host's that shows only this PID namespace, and nothing of the machine.

    Raises:
        OSError: the kernel does not let an ordinary user mount it here.
    """
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC | linux.MS_RDONLY
    linux.mount("proc", confine.PROC, "proc", flags, "subset=pid,hidepid=2").make()


def bound_processes(most: int) -> None:
    """Limit the process ids of this new PID namespace in the kernel, which no fork bomb outruns.

    RLIMIT_NPROC does not apply to root in any user namespace, and a sampler does not get to run on a
    machine that a fork bomb has filled.

    Args:
        most: at least 301, since the kernel reuses ids from 300 on.

    Raises:
        OSError: before Linux 6.14 the limit is the whole machine's, or /proc cannot be mounted.
    """
    if not can_bound_processes():
        raise OSError("a PID namespace has its own limit only from Linux 6.14 on")
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("proc", confine.PROC, "proc", flags).make()
    Path(f"{confine.PROC}/sys/kernel/pid_max").write_text(str(most))
    linux.own_proc_entries()  # else root owns the next file, and ordinary users cannot write it
    Path(f"{confine.PROC}/self/oom_score_adj").write_text("1000")  # first choice of the OOM killer
    linux.hide_memory()
    linux.unmount(confine.PROC)


def can_bound_processes() -> bool:
    """Return whether each PID namespace has its own `pid_max`; on older kernels the machine has one."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return found is not None and (int(found[1]), int(found[2])) >= (6, 14)


def _limit_memory(profile: Profile, limits: Limits) -> None:
    memory = limits.memory_mb << 20
    if profile is Profile.runtime:
        linux.limit(resource.RLIMIT_DATA, memory + _DATA_MARGIN).make()
    else:
        linux.limit(resource.RLIMIT_AS, memory + _AS_MARGIN).make()
    if profile is Profile.shell:
        linux.limit(resource.RLIMIT_NPROC, 2 * _MAX_PROCESSES).make()
    # The address space bounds unlimited stacks, with which threads start with small ones.
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))


# ── watching ──────────────────────────────────────────────────────────────────────────────────────


def watch(
    pid: int, place: Place, limits: Limits, started: float, outputs: Sequence[int] = ()
) -> str | None:
    """Wait until a command ends, and kill it at a limit; do not reap it.

    Args:
        outputs: descriptors of files that it may not fill. SIGXFSZ does not end the first process of a
            PID namespace.

    Returns:
        The limit: "cpu", "wall", "starved" (`proc_files.wall_limit`), "memory", "output", "threads",
        "processes", or None if it ended by itself.
    """
    proc = place.confinement.proc
    assert proc is not None
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    killed = None
    waits = proc_files.Waits(proc)
    while killed is None:
        use = _Use.of(proc, pid, place.profile)
        cpu_left_s = limits.cpu_s - use.cpu_s
        elapsed_s = time.monotonic() - started
        if place.profile is Profile.shell or elapsed_s >= limits.wall_s:
            waits.look(use.pids)
        if cpu_left_s <= 0:
            killed = "cpu"
        elif limit := proc_files.wall_limit(elapsed_s, limits.wall_s, waits.seconds):
            killed = limit
        elif use.memory > limits.memory_mb << 20:
            killed = "memory"
        elif any(os.fstat(fd).st_size >= limits.output_kb << 10 for fd in outputs):
            killed = "output"
        elif len(use.pids) > _MAX_PROCESSES:
            killed = "processes"
        elif use.threads > MAX_THREADS:
            killed = "threads"
        else:
            longest_s = min(max(cpu_left_s, 0.002), place.profile.sample_s)
            if elapsed_s < limits.wall_s:
                longest_s = min(longest_s, limits.wall_s - elapsed_s)
            if poll.poll(1 + int(1000 * longest_s)):
                break
    os.close(pidfd)
    if killed:
        os.kill(pid, signal.SIGKILL)
    return killed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """Current resource usage of a process, or of a tree of processes."""

    cpu_s: float = 0.0
    """CPU seconds, including ended children for which their parents waited."""
    memory: int = 0
    """Resident bytes that are not file-backed."""
    pids: Sequence[int] = ()
    threads: int = 0

    @classmethod
    def of(cls, proc: int, root: int, profile: Profile) -> _Use:
        if profile is Profile.native:  # memory has a hard limit; this CPU clock is exact and cheap
            cpu_s = 0.0
            with suppress(OSError):
                cpu_s = time.clock_gettime((~root << 3) | 2)  # see clock_getcpuclockid(3)
            return cls(cpu_s=cpu_s, pids=[root], threads=forked.links(proc, f"{root}/task"))
        return cls._of_tree(proc, root, whole_tree=profile is Profile.shell)

    @classmethod
    def _of_tree(cls, proc: int, root: int, *, whole_tree: bool) -> _Use:
        ticks = pages = threads = 0
        pending, pids = [root], list[int]()
        while pending and len(pids) <= _MAX_PROCESSES:
            pid = pending.pop()
            with suppress(OSError, IndexError):  # the process ended meanwhile
                fields = proc_files.read(proc, f"{pid}/stat").rpartition(")")[2].split()
                _, resident, shared, *_ = map(int, proc_files.read(proc, f"{pid}/statm").split())
                ticks += sum(map(int, fields[11:15] if whole_tree else fields[11:13]))
                threads += int(fields[17])
                pages += max(0, resident - shared)
                pids.append(pid)
                if whole_tree:
                    pending += proc_files.children(proc, pid)
        return cls(cpu_s=ticks / _TICKS, memory=pages * _PAGE, pids=pids, threads=threads)


_LAST_WORDS = (
    b"std::bad_alloc", b"JavaScript heap out of memory", b"annot allocate memory",
    b"java.lang.OutOfMemoryError", b"runtime: out of memory", b"memory allocation of ",
)  # fmt: skip
"""Messages of programs that end for lack of memory: C++'s runtime, V8, a shell or Go, the Java VM, Go,
Rust."""


def ran_out_of_memory(status: int, usage: resource.struct_rusage, err: int, limits: Limits) -> bool:
    """Return whether a program failed for lack of memory: it used nearly all of its limit, or said so."""
    if status == 0:
        return False
    if usage.ru_maxrss >> 10 >= 0.9 * limits.memory_mb:
        return True
    size = os.fstat(err).st_size
    tail = os.pread(err, 2000, max(0, size - 2000))
    return any(words in tail for words in _LAST_WORDS)
