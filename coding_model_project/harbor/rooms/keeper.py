"""The processes that make and serve rooms. All run trusted code only, but C.

    keeper: builds the read-only parts once. The host starts it as `-m …keeper HOST_PID FD SETUP`
      └ steward, one per room: builds the root. It serves a socket that comes with a request to the keeper
          └ P, one per phase: runs commands and transfers files. Outside the phase's PID namespace:
              nothing in the room sees, signals or traces it
              ├ init: the first process of that namespace; adopts and reaps
              └ C, one per command: drops all rights and becomes the shell

A phase ends with its init, which ends all its processes. The verifier's phase mounts new /tests and
/logs/verifier over whatever the candidate left at these paths.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.rooms import command, root
from coding_model_project.harbor.rooms.command import Job, Running, Shell, Stream
from coding_model_project.harbor.rooms.root import LOGS, TESTS, Base
from coding_model_project.isolation import confine, linux, seccomp
from coding_model_project.sandbox.embedded import frames, launch

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_LOGS_SIZE = "64m"
_SAMPLE_S = 0.1
"""Wall seconds between two looks at the processes that commands left behind."""
_AGENTS_NICE = 5
"""Niceness of agents: next to them, verifiers and the judge get three times their share of a core."""

_OF_THE_MACHINE = (errno.ENOMEM, errno.EIO, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
"""Errors that a candidate's files do not cause."""

_ARGUMENTS = slice(45, 47)
"""Fields of proc_pid_stat(5) after the command's name: start and end of the arguments in memory."""


class _End(IntEnum):
    """Exit codes of P, by the reason that a phase ended."""

    closed = 0
    broken = 1
    verify = 10
    resume = 11


def serve(channel: socket.socket, base: Base, shell: Shell, head: frames.Head) -> NoReturn:
    """Build a room, serve it until the host closes the channel, then end the process."""

    def body() -> int:
        linux.hide_memory()
        linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWUTS)
        _raise_loopback()
        root.furnish(
            base,
            head["storage_mb"],
            own_proc=shell.own_proc,
            packages=head.get("packages", False),
        )
        return _phases(channel, shell, head)

    _to_the_end(channel, body)


def _to_the_end(channel: socket.socket, body: Callable[[], int]) -> NoReturn:
    """Exit with the body's code, so that nothing returns into the forked caller's frames."""
    code = int(_End.broken)
    try:
        code = body()
    except (EOFError, ConnectionError):
        code = int(_End.closed)
    except BaseException as error:  # noqa: BLE001 - sent to the host, which raises
        with suppress(OSError):
            frames.send(channel, {"broken": f"{type(error).__name__}: {error}"})
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _phases(channel: socket.socket, shell: Shell, head: frames.Head) -> int:
    """Run phase after phase, and return an exit code. This process keeps what outlives a phase."""
    answer: frames.Head = {}
    mounted: list[str] = []
    while True:
        pid = os.fork()
        if pid == 0:
            phase = _Phase(channel, shell, head, of_verifier=bool(mounted))
            _to_the_end(channel, partial(phase.serve, answer))
        answer = {}
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == _End.verify:
            try:
                # Hide the candidate's folders. None of its processes lives at this point.
                root.clear_ways((TESTS, LOGS))
                sizes = ((TESTS, f"{head['storage_mb']}m", 0o755), (LOGS, _LOGS_SIZE, 0o777))
                for path, size, mode in sizes:
                    root.fresh(path, size, mode)
                    mounted.append(path)
                continue
            except OSError as error:
                if error.errno in _OF_THE_MACHINE:
                    raise
                answer = _failure(error)  # the candidate's files prevent its verification
        elif code != _End.resume:
            return code
        while mounted:
            linux.unmount(mounted.pop())


class _Phase:
    """P: a PID namespace, and the server of requests while it lasts."""

    def __init__(
        self, channel: socket.socket, shell: Shell, head: frames.Head, *, of_verifier: bool
    ) -> None:
        self._channel, self._shell, self._of_verifier = channel, shell, of_verifier
        self._limits = {
            "max_bytes": head["memory_mb"] << 20,
            "max_processes": head["processes"],
        }
        self._streams: list[Stream] = []
        """Those of the running command, and of ended ones whose remaining processes may still print."""
        self._running: Running | None = None

    def serve(self, answer: frames.Head) -> int:
        """Answer requests until the phase ends, and return an exit code.

        Args:
            answer: the answer to the request that ended the last phase, or made the room.
        """
        linux.die_with_parent().make()
        linux.hide_memory()
        self._begin()
        frames.send(self._channel, answer)
        while True:
            if not self._look():
                continue
            request, body = frames.receive(self._channel)
            if self._running is not None:  # any request during a command is an interrupt
                self._finish("interrupted")
            elif request["do"] in _End.__members__:
                self._end()
                return int(_End[request["do"]])
            else:
                self._answer(request, body)

    def _look(self) -> bool:
        """Read output and hold processes to their limits; return whether the host sent a request."""
        if self._running is not None and (killed := self._running.beyond()):
            self._finish(killed)
            return False
        poll = select.poll()
        for fd in (self._channel.fileno(), *(one.fd for one in self._streams)):
            poll.register(fd, select.POLLIN)
        wait_s = _SAMPLE_S if self._job.lives() else None
        if self._running is not None:
            poll.register(self._running.pidfd, select.POLLIN)
            wait_s = self._running.wait_s()
        ready = {fd for fd, _ in poll.poll(None if wait_s is None else 1 + 1000 * wait_s)}
        for one in self._streams:
            if one.fd in ready:
                one.drain()
                if self._running is None or one not in self._running.streams:
                    one.forget()  # read so that writers do not block, then dropped
        self._streams = [one for one in self._streams if one.open]
        if self._running is None:
            if not ready and self._job.beyond():
                self._job.kill()
        elif self._running.pidfd in ready:
            self._finish(None)
        return self._channel.fileno() in ready

    def _answer(self, request: frames.Head, body: bytes) -> None:
        """Answer one request. Errors about a path in the room are answers too."""
        answer: frames.Head = {}
        content = b""
        try:
            match request["do"]:
                case "run":
                    asked = command.Command(**request["command"])
                    nice = 0 if self._of_verifier else _AGENTS_NICE
                    self._running = command.start(self._shell, asked, self._job, nice=nice)
                    self._streams += self._running.streams
                    return  # `_finish` answers
                case "write":
                    tree.unpack(request["path"], tree.Tree.of_frame(request["entries"], body))
                case "read":
                    content = tree.read(request["path"], request["max_bytes"])
                case "pack" | "changes" as kind:
                    own = {os.stat(path).st_dev for path in ("/", "/etc")}
                    only = request.get("only")
                    packed = tree.pack(
                        request.get("path", "/"),
                        request["max_bytes"],
                        request["max_entries"],
                        devices=own if kind == "changes" else None,
                        keeps=None if only is None else lambda name: name.split("/")[0] in only,
                    )
                    entries, content = packed.frame()
                    answer = {"entries": entries}
                case "listen":
                    # A socket on this room's loopback, for the host to serve.
                    with socket.create_server(("127.0.0.1", request["port"])) as listening:
                        answered = [frames.encoded({})]
                        socket.send_fds(self._channel, answered, [listening.fileno()])
                    return
                case "alive":
                    pass
                case "interrupt":
                    return  # the command had already ended; nobody waits for an answer
                case unknown:
                    raise ValueError(f"no request {unknown!r}")
        except OSError as error:
            answer = _failure(error)
        frames.send(self._channel, answer, content)

    def _finish(self, killed: str | None) -> None:
        """Answer the request of the command that runs; its background processes continue.

        Args:
            killed: why it is killed, with its descendants; None if its shell has ended.
        """
        running, self._running = self._running, None
        assert running is not None
        if killed == "starved" and not self._of_verifier:
            killed = "timeout"
        content = b""
        try:
            if killed:
                running.job.kill()
            status, report = running.ended()
            if killed:
                running.job.kill()  # what its end has left to init
            kind, _, reason = report.partition(":")
            code = os.waitstatus_to_exitcode(status)
            for one in running.streams:
                one.drain()
            (out, out_lost), (err, err_lost) = (one.take() for one in running.streams)
            if kind == "refused":
                code, err = command.CANNOT_START, err + reason.encode() + b"\n"
            answer: frames.Head = {
                "exit": code if code >= 0 else 128 - code,
                "killed": killed,
                "failed": reason if kind == "failed" else None,
                "stdout": len(out),
                "lost": [out_lost, err_lost],
            }
            content = out + err
        except OSError as error:
            answer = _failure(error)
        for one in running.streams:
            one.forget()
        frames.send(self._channel, answer, content)

    def _begin(self) -> None:
        linux.unshare(linux.CLONE_NEWPID | linux.CLONE_NEWIPC)
        ours, theirs = os.pipe()
        pid = os.fork()  # the first fork after unshare makes the namespace's first process
        if pid == 0:
            _be_init(theirs, self._shell, self._limits["max_processes"])
        os.close(theirs)
        reply = os.read(ours, 2000)
        os.close(ours)
        if reply != b"ready":
            os.waitpid(pid, 0)
            raise OSError(f"the first process of a room failed: {reply.decode(errors='replace')}")
        self._job = Job(proc=self._shell.proc, init=pid, **self._limits)

    def _end(self) -> None:
        """Kill every process of the room, and wait until they are gone."""
        with suppress(ProcessLookupError):
            os.kill(self._job.init, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:  # the namespace's last processes are children of this process or of init
                os.waitpid(-1, 0)
        if self._shell.own_proc:
            linux.unmount(confine.PROC)


def _failure(error: Exception) -> frames.Head:
    return {"error": type(error).__name__, "message": str(error)}


def _raise_loopback() -> None:
    """Enable the loopback device, which a task's servers and clients use."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16xh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[0]
        request = struct.pack("16sh14x", b"lo", flags | _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _be_init(ready: int, shell: Shell, max_processes: int) -> NoReturn:
    """Become a PID namespace's first process, which reaps orphans until it is killed."""
    try:
        linux.die_with_parent().make()
        linux.own_proc_entries()
        os.dup2(ready, 0)
        if shell.bounds_processes:
            launch.bound_processes(max_processes)
        _forget_arguments(shell.proc)
        if shell.own_proc:
            root.mount_proc()
        linux.close_from(1).make()
        linux.drop_capabilities().make()
        linux.no_new_privileges().make()
        linux.hide_memory()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        os.write(0, b"ready")
        os.close(0)
        while True:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
            signal.sigwait({signal.SIGCHLD})
    except BaseException as error:  # noqa: BLE001 - sent to the steward, which raises
        with suppress(OSError):
            os.write(0, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(1)


def _forget_arguments(proc: int) -> None:
    """Overwrite the first process's arguments, in which `ps` would show the host's paths."""
    fd = os.open("self/stat", os.O_RDONLY, dir_fd=proc)
    fields = os.read(fd, 4096).rpartition(b")")[2].split()
    start, end = map(int, fields[_ARGUMENTS])
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, b"init", 4)


_MAX_HEAD = 1 << 16
_PROC = 250
"""Descriptor of the host's /proc, above those that a command gets."""


def main() -> None:
    host, descriptor, setup = sys.argv[1:]
    channel = socket.socket(fileno=linux.lowest(int(descriptor)))  # below _PROC
    linux.end_with(int(host))
    base, shell = _prepare(json.loads(setup))
    os.environ.clear()
    signal.signal(signal.SIGCHLD, _reap)
    gc.collect()
    gc.freeze()
    channel.send(b"ready")
    me = os.getpid()
    with suppress(ConnectionError):
        while True:
            head, descriptors, _, _ = socket.recv_fds(channel, _MAX_HEAD, 1)
            if not head:  # the host closed the channel
                return
            theirs = socket.socket(fileno=descriptors[0])
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                channel.close()
                linux.end_with(me)
                serve(theirs, base, shell, json.loads(head))
            theirs.close()


def _reap(*_: object) -> None:
    """Reap stewards that ended, so that their CPU time counts as this process's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _prepare(setup: dict[str, Any]) -> tuple[Base, Shell]:
    """Enter the namespaces and build the base.

    Raises:
        OSError: this machine does not allow it.
    """
    opened = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    proc = os.dup2(opened, _PROC, inheritable=False)
    os.close(opened)
    agent = setup["agent"]
    confine.new_namespaces(0)
    place = Path(confine.mount_point([sys.base_prefix, *([agent] if agent else [])]))
    base = root.build(place, Path(agent) if agent else None)
    root.hide_own_package()
    linux.make_read_only("/")
    linux.sethostname("room")
    own_proc = _can_mount_proc()
    shell = Shell(
        filter=linux.Filter(seccomp.ROOM),
        proc=proc,
        own_proc=own_proc,
        bounds_processes=own_proc and launch.can_bound_processes(),
    )
    return base, shell


def _can_mount_proc() -> bool:
    """Return whether rooms can mount /proc: the kernel refuses if a container engine covers parts."""
    pid = linux.fork(linux.CLONE_NEWPID | linux.CLONE_NEWNS)
    if pid == 0:
        with suppress(BaseException):
            flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC | linux.MS_RDONLY
            linux.mount("proc", f"{root.BASE}/proc", "proc", flags, "subset=pid").make()
            os._exit(0)
        os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


if __name__ == "__main__":
    main()
