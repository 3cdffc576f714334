"""The Linux calls that Python does not offer, by ctypes, for x86_64 and aarch64."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the GIL, so usable around clone()
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long

MACHINE = platform.machine()
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(MACHINE)
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}.get(MACHINE, 0)

_NUMBERS: dict[str, tuple[int, int]] = {
    "clone": (56, 220), "clone3": (435, 435), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "seccomp": (317, 277), "capset": (126, 91), "close_range": (436, 436), "prctl": (157, 167),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446), "sethostname": (170, 161), "setdomainname": (171, 162),
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, -1), "vfork": (58, -1),
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211),
    "sendmmsg": (307, 269), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "kcmp": (312, 272),
    "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "move_mount": (429, 429), "open_tree": (428, 428),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "shmget": (29, 194),
    "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "personality": (135, 92), "fanotify_init": (300, 262), "inotify_init1": (294, 26),
    "setpriority": (141, 140), "sched_setattr": (314, 274), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setaffinity": (203, 122), "ioprio_set": (251, 30),
    "mbind": (237, 235), "set_mempolicy": (238, 237), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "memfd_secret": (447, 447), "setrlimit": (160, 164),
    "prlimit64": (302, 261), "tkill": (200, 130), "tgkill": (234, 131), "kill": (62, 129),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "setsid": (112, 157),
    "setpgid": (109, 154), "vmsplice": (278, 75), "remap_file_pages": (216, 234),
    "memfd_create": (319, 279), "fcntl": (72, 25), "ioctl": (16, 29), "iopl": (172, -1),
    "ioperm": (173, -1), "modify_ldt": (154, -1), "inotify_init": (253, -1), "vhangup": (153, 58),
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "truncate": (76, 45),
    "lsm_set_self_attr": (460, 460),
}  # fmt: skip

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x20000, 0x2000000, 0x4000000
CLONE_NEWIPC, CLONE_NEWUSER = 0x8000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET, CLONE_THREAD = 0x20000000, 0x40000000, 0x10000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE, MNT_DETACH = 16384, 1 << 18, 2
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _AT_FDCWD, _AT_RECURSIVE = 1, 2, -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38


def number(name: str) -> int:
    """A system call's number on this machine; -1 if it has none.

    Raises:
        OSError: the machine's architecture is not supported.
    """
    if _COLUMN is None:
        raise OSError(errno.ENOSYS, f"no system call table for {MACHINE}")
    return _NUMBERS[name][_COLUMN]


def call(name: str, *arguments: object) -> int:
    """Make a system call; raises OSError with its name."""
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = _syscall(ctypes.c_long(number(name)), *converted)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result


def unshare(flags: int) -> None:
    call("unshare", flags)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    def text(value: str) -> ctypes.c_char_p:
        return ctypes.c_char_p(value.encode() if value else None)

    call("mount", text(source), text(target), text(kind), flags, text(data))


def pivot_root(new: str, old: str) -> None:
    call("pivot_root", ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()))


def unmount(target: str) -> None:
    call("umount2", ctypes.c_char_p(target.encode()), MNT_DETACH)


def make_read_only(target: str) -> None:
    """A mount and all mounts below it: read-only, without set-uid programs."""
    attributes = struct.pack("4Q", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    path = ctypes.c_char_p(target.encode())
    call("mount_setattr", _AT_FDCWD, path, _AT_RECURSIVE, ctypes.c_char_p(attributes), 32)


def sethostname(name: str) -> None:
    call("sethostname", ctypes.c_char_p(name.encode()), len(name))


def close_range(first: int) -> None:
    """Close every descriptor from this one up."""
    call("close_range", first, 0xFFFFFFFF, 0)


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends.

    Args:
        parent: its process id. If it ended before this call, this process ends here: the kernel would
            never tell. None in a PID namespace of one's own, where the parent has no id.
    """
    call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def hide_memory() -> None:
    """Not dumpable: processes of the same user can neither trace nor read this one."""
    call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def no_new_privileges() -> None:
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def fork(namespaces: int = 0) -> int:
    """Fork, the child in new namespaces. 0 in the child."""
    if not namespaces:
        return os.fork()
    ctypes.pythonapi.PyOS_BeforeFork()
    flags = ctypes.c_long(namespaces | signal.SIGCHLD)
    pid = _syscall(ctypes.c_long(number("clone")), flags, 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    code = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, os.strerror(code), "clone")
    return pid


# ── Landlock ──────────────────────────────────────────────────────────────────────────────────────

_FS_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_READ_ONLY = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read directory
_READ_ONLY_FILE = 1 << 0 | 1 << 2


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 without."""
    try:
        return call("landlock_create_ruleset", ctypes.c_void_p(None), 0, 1)
    except OSError:
        return 0


def landlock_ruleset(abi: int, readable: Sequence[str]) -> int:
    """A descriptor of rules: only `readable` paths, read-only; no TCP; no signals out (ABI 6)."""
    rights = _FS_RIGHTS.get(abi, (1 << 16) - 1)
    words = [rights] + ([3] if abi >= 4 else []) + ([3] if abi >= 6 else [])
    attributes = struct.pack(f"{len(words)}Q", *words)
    ruleset = call("landlock_create_ruleset", ctypes.c_char_p(attributes), len(attributes), 0)
    for path in readable:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = _READ_ONLY if Path(path).is_dir() else _READ_ONLY_FILE
        rule = struct.pack("=QI", allowed, fd)
        call("landlock_add_rule", ruleset, 1, ctypes.c_char_p(rule), 0)
        os.close(fd)
    return ruleset


def landlock_restrict(ruleset: int) -> None:
    call("landlock_restrict_self", ruleset, 0)


# ── seccomp ───────────────────────────────────────────────────────────────────────────────────────

_CONDITIONAL = {"clone", "clone3", "prlimit64", "kill", "tgkill", "fcntl", "ioctl"}
_HARMLESS = {"close_range", "landlock_restrict_self"}
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x50000
_NUMBER, _ARCH, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32  # offsets in struct seccomp_data
_PID_PLACEHOLDER = 0x5EC0DE5
_Code = list[tuple[int, int, int, int]]


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter without processes, exec, sockets, mounts, changes to files' attributes, or signals
    to others.

    Denied calls give EPERM; clone3 gives ENOSYS, so that threads fall back to clone; a call of a
    foreign architecture kills.
    """

    template: bytes

    @classmethod
    def build(cls) -> Self:
        """The filter for this machine, made once; `install` puts in the process's own id."""
        denied = {number(name) for name in _NUMBERS if name not in _CONDITIONAL | _HARMLESS} - {-1}
        code = _preamble() + _only_threads() + _only_reading_limits() + _only_own_signals()
        code += _not_with("fcntl", 8, 10, 15, 1024)  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE
        code += _not_with("ioctl", 0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
        code += [(_JEQ, len(denied) - i, 0, n) for i, n in enumerate(sorted(denied))]
        code += [(_RET, 0, 0, _ALLOW), (_RET, 0, 0, _ERRNO | errno.EPERM)]
        return cls(b"".join(struct.pack("HBBI", *instruction) for instruction in code))

    def install(self) -> None:
        """From here on this process, and its threads, are under the filter."""
        placeholder, own = (struct.pack("I", pid) for pid in (_PID_PLACEHOLDER, os.getpid()))
        program = self.template.replace(placeholder, own)
        buffer = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
        call("seccomp", 1, 0, ctypes.byref(ctypes.create_string_buffer(header, len(header))))


def _preamble() -> _Code:
    code = [(_LD, 0, 0, _ARCH), (_JEQ, 1, 0, AUDIT_ARCH), (_RET, 0, 0, _KILL), (_LD, 0, 0, _NUMBER)]
    if MACHINE == "x86_64":  # the x32 table would go round the numbers below
        code += [(_JGE, 0, 1, 0x40000000), (_RET, 0, 0, _KILL)]
    return code


def _only_threads() -> _Code:
    return [
        (_JEQ, 0, 1, number("clone3")),
        (_RET, 0, 0, _ERRNO | errno.ENOSYS),
        (_JEQ, 0, 4, number("clone")),
        (_LD, 0, 0, _FIRST),
        (_JSET, 1, 0, CLONE_THREAD),
        (_RET, 0, 0, _ERRNO | errno.EAGAIN),
        (_LD, 0, 0, _NUMBER),
    ]


def _only_reading_limits() -> _Code:
    """prlimit64 with a null pointer to new limits: both halves of the third argument are 0."""
    return [
        (_JEQ, 0, 6, number("prlimit64")),
        (_LD, 0, 0, _THIRD),
        (_JEQ, 0, 2, 0),
        (_LD, 0, 0, _THIRD + 4),
        (_JEQ, 1, 0, 0),
        (_RET, 0, 0, _ERRNO | errno.EPERM),
        (_LD, 0, 0, _NUMBER),
    ]


def _only_own_signals() -> _Code:
    code: _Code = []
    for name in ("kill", "tgkill"):
        code += [
            (_JEQ, 0, 4, number(name)),
            (_LD, 0, 0, _FIRST),
            (_JEQ, 1, 0, _PID_PLACEHOLDER),
            (_RET, 0, 0, _ERRNO | errno.EPERM),
            (_LD, 0, 0, _NUMBER),
        ]
    return code


def _not_with(name: str, *commands: int) -> _Code:
    """Denied with these as second argument."""
    n = len(commands)
    return [
        (_JEQ, 0, n + 3, number(name)),
        (_LD, 0, 0, _SECOND),
        *((_JEQ, n - 1 - i, 1 if i == n - 1 else 0, c) for i, c in enumerate(commands)),
        (_RET, 0, 0, _ERRNO | errno.EPERM),
        (_LD, 0, 0, _NUMBER),
    ]
