"""The process from which all rooms are forked. Builds the read-only parts once; runs only trusted code.

`Rooms` starts it as `-m …keeper HOST_PID FD SETUP`. Each request on its channel comes with a socket,
which a new steward then serves.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from coding_model_project.harbor.rooms import root, steward
from coding_model_project.harbor.rooms.command import Shell
from coding_model_project.harbor.rooms.root import Base
from coding_model_project.isolation import confine, linux, seccomp
from coding_model_project.sandbox.embedded import launch

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
                steward.serve(theirs, base, shell, json.loads(head))
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
