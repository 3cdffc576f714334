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
from coding_model_project.isolation import linux

ROOT = Path(__file__).parents[3]
UNREADABLE = 77
"""Exit code where "nobody" may not read the files themselves, as of a clone made with umask 077."""

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
    """Become an ordinary user, who sees the interpreter and this checkout wherever they lie.

    A folder above them that only its owner may enter, as root's home, is replaced by one that shows
    nothing else, in a mount namespace of this process's own.
    """
    shown = sorted({ROOT, Path(sys.base_prefix), Path(sys.prefix)})
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("", "/", "", linux.MS_REC | linux.MS_PRIVATE).make()
    opened = {path: os.open(path, os.O_PATH) for path in shown}
    closed = {path: _closed_above(path) for path in shown}
    for above in set(closed.values()) - {None}:
        linux.mount("home", str(above), "tmpfs", 0, "mode=755").make()
    for path in shown:  # an outer folder before one that lies in it
        if closed[path]:
            path.mkdir(parents=True, exist_ok=True)
            source = f"/proc/self/fd/{opened[path]}"
            linux.mount(source, str(path), "", linux.MS_BIND | linux.MS_REC).make()
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    os.environ["HOME"] = "/tmp"
    os.chdir("/")
    for path in (Path(sys.executable), Path(linux.__file__)):
        if not os.access(path, os.R_OK):
            print(f"nobody may not read {path}")
            sys.exit(UNREADABLE)


def _closed_above(path: Path) -> Path | None:
    """The outermost folder above this one that other users may not enter."""
    return next((p for p in reversed(path.parents) if not p.stat().st_mode & 0o001), None)


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
