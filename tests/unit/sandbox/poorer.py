"""Runs a command as it would be run on a poorer machine: `python poorer.py USER CALL,CALL COMMAND…`.

A seccomp filter refuses the named system calls: a container's profile or an old kernel, as seen from
inside. USER is "same", or "nobody" where this is root: an ordinary user, without capabilities.
"""

import ctypes
import errno
import os
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from coding_model_project.sandbox.embedded import linux

_CLONE_NEW = 0x7E020000


def filter_against(names: list[str]) -> bytes:
    """Refuses calls; "clone" only with flags for new namespaces."""
    code = [(0x20, 0, 0, 0)]  # load the number
    for name in names:
        code.append((0x15, 0, 4 if name == "clone" else 1, linux.number(name)))
        if name == "clone":
            code += [(0x20, 0, 0, 16), (0x45, 1, 0, _CLONE_NEW), (0x06, 0, 0, 0x7FFF0000)]
        error = errno.ENOSYS if name.startswith("landlock") else errno.EPERM
        code.append((0x06, 0, 0, 0x50000 | error))
    code.append((0x06, 0, 0, 0x7FFF0000))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def become_nobody() -> None:
    """An interpreter in root's own home is shown to everybody, in a mount namespace of its own."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    for prefix in map(Path, {sys.base_prefix, sys.prefix}):
        closed = [p for p in reversed(prefix.parents) if not p.stat().st_mode & 0o001]
        if closed:
            fd = os.open(prefix, os.O_PATH)
            linux.mount("home", str(closed[0]), "tmpfs", 0, "mode=755").make()
            prefix.mkdir(parents=True)
            linux.mount(f"/proc/self/fd/{fd}", str(prefix), "", linux.MS_BIND | linux.MS_REC).make()
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    os.environ["HOME"] = "/tmp"


def main() -> None:
    user, names, *command = sys.argv[1:]
    if user == "nobody":
        become_nobody()
    linux.no_new_privileges().make()
    program = filter_against([name for name in names.split(",") if name])
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    linux.call("seccomp", 1, 0, header)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
