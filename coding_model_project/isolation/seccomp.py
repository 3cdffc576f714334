"""The seccomp program of a test, for either architecture: a binary search of the calls that it may make.

It is an allow-list, since kernels keep gaining calls. Denied calls return EPERM. Calls newer than the
tables return ENOSYS, so that libraries fall back. So does clone3, so that threads are made by clone,
whose flags a filter can see. A call by another architecture's convention kills the process.

aarch64 never had the older forms (`open`, `fork`), which are -1 there; from 424 on all architectures
share their numbers.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping, Sequence
from typing import Final

ARCHITECTURES: Final = {"x86_64": 0, "aarch64": 1}
AUDIT: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FIRST_SHARED: Final = 424
"""First number shared by all architectures. A call missing here is denied below it (EPERM); from it on,
libraries do without the call (ENOSYS)."""

OURS: Final[dict[str, tuple[int, int]]] = {
    "unshare": (272, 97), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "seccomp": (317, 277), "capset": (126, 91), "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446),
    "sethostname": (170, 161), "mount_setattr": (442, 442),
}  # fmt: skip
"""Calls made while confining, never by a test."""

CONDITIONAL: Final[dict[str, tuple[int, int]]] = {
    "clone": (56, 220), "clone3": (435, 435), "prlimit64": (302, 261), "kill": (62, 129),
    "tgkill": (234, 131), "fcntl": (72, 25), "ioctl": (16, 29), "sendto": (44, 206),
    "socketpair": (53, 199), "prctl": (157, 167),
}  # fmt: skip
"""Calls allowed with some arguments (`seccomp`)."""

_FILES: Final[dict[str, tuple[int, int]]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, -1), "close": (3, 57), "stat": (4, -1),
    "fstat": (5, 80), "lstat": (6, -1), "lseek": (8, 62), "pread64": (17, 67), "pwrite64": (18, 68),
    "readv": (19, 65), "writev": (20, 66), "access": (21, -1), "pipe": (22, -1),
    "sendfile": (40, 71), "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24), "flock": (73, 32),
    "fsync": (74, 82), "fdatasync": (75, 83), "ftruncate": (77, 46), "getdents": (78, -1),
    "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "rename": (82, -1), "mkdir": (83, -1), "rmdir": (84, -1), "creat": (85, -1), "link": (86, -1),
    "unlink": (87, -1), "symlink": (88, -1), "readlink": (89, -1), "umask": (95, 166),
    "statfs": (137, 43), "fstatfs": (138, 44), "readahead": (187, 213), "getxattr": (191, 8),
    "lgetxattr": (192, 9), "fgetxattr": (193, 10), "listxattr": (194, 11), "llistxattr": (195, 12),
    "flistxattr": (196, 13), "fadvise64": (221, 223), "openat": (257, 56), "mkdirat": (258, 34),
    "newfstatat": (262, 79), "unlinkat": (263, 35), "renameat": (264, 38), "linkat": (265, 37),
    "symlinkat": (266, 36), "readlinkat": (267, 78), "faccessat": (269, 48), "splice": (275, 76),
    "tee": (276, 77), "sync_file_range": (277, 84), "fallocate": (285, 47), "pipe2": (293, 59),
    "preadv": (295, 69), "pwritev": (296, 70), "renameat2": (316, 276),
    "copy_file_range": (326, 285), "preadv2": (327, 286), "pwritev2": (328, 287),
    "statx": (332, 291), "close_range": (436, 436), "openat2": (437, 437), "faccessat2": (439, 439),
}  # fmt: skip

NAMES_OF_FILES: Final = (
    *("creat", "mkdir", "mkdirat", "rmdir", "link", "linkat", "symlink", "symlinkat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat"),
)
"""Those of them that make, rename or remove files."""

_MEMORY: Final[dict[str, tuple[int, int]]] = {
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214),
    "mremap": (25, 216), "msync": (26, 227), "madvise": (28, 233),
    "get_mempolicy": (239, 236),
}  # fmt: skip

_TIME_AND_SIGNALS: Final[dict[str, tuple[int, int]]] = {
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "pause": (34, -1), "nanosleep": (35, 101), "getitimer": (36, 102), "alarm": (37, -1),
    "setitimer": (38, 103), "gettimeofday": (96, 169), "times": (100, 153),
    "rt_sigpending": (127, 136), "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132), "time": (201, -1), "restart_syscall": (219, 128),
    "timer_create": (222, 107), "timer_settime": (223, 110), "timer_gettime": (224, 108),
    "timer_getoverrun": (225, 109), "timer_delete": (226, 111), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "signalfd": (282, -1),
    "timerfd_create": (283, 85), "timerfd_settime": (286, 86), "timerfd_gettime": (287, 87),
    "signalfd4": (289, 74),
}  # fmt: skip

_WAITING: Final[dict[str, tuple[int, int]]] = {
    "poll": (7, -1), "select": (23, -1), "sched_yield": (24, 124), "recvfrom": (45, 207),
    "shutdown": (48, 210), "getsockname": (51, 204), "getpeername": (52, 205),
    "setsockopt": (54, 208), "getsockopt": (55, 209), "futex": (202, 98),
    "epoll_create": (213, -1), "epoll_wait": (232, -1), "epoll_ctl": (233, 21),
    "pselect6": (270, 72), "ppoll": (271, 73), "set_robust_list": (273, 99),
    "get_robust_list": (274, 100), "epoll_pwait": (281, 22), "eventfd": (284, -1),
    "eventfd2": (290, 19), "epoll_create1": (291, 20), "rseq": (334, 293),
    "epoll_pwait2": (441, 441), "futex_waitv": (449, 449),
}  # fmt: skip

_ABOUT_ITSELF: Final[dict[str, tuple[int, int]]] = {
    "getpid": (39, 172), "exit": (60, 93), "wait4": (61, 260), "uname": (63, 160),
    "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179), "getuid": (102, 174),
    "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177), "getppid": (110, 173),
    "getpgrp": (111, -1), "getgroups": (115, 158), "getresuid": (118, 148),
    "getresgid": (120, 150), "getpgid": (121, 155), "getsid": (124, 156), "capget": (125, 90),
    "getpriority": (140, 141), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "sched_rr_get_interval": (148, 127), "gettid": (186, 178), "sched_getaffinity": (204, 123),
    "set_tid_address": (218, 96), "exit_group": (231, 94), "waitid": (247, 95),
    "getcpu": (309, 168), "getrandom": (318, 278),
}  # fmt: skip

ALLOWED: Final[dict[str, tuple[int, int]]] = (
    _FILES | _MEMORY | _TIME_AND_SIGNALS | _WAITING | _ABOUT_ITSELF
)
"""Calls allowed with any arguments: those of Python, its standard library and numpy without processes."""

EXECUTION: Final[dict[str, tuple[int, int]]] = {"execveat": (322, 281), "arch_prctl": (158, -1)}
"""Calls needed to execute another program (`seccomp.ONE_EXEC`)."""

PROCESSES: Final[dict[str, tuple[int, int]]] = {
    "execve": (59, 221), "fork": (57, -1), "vfork": (58, -1), "setpgid": (109, 154),
    "setsid": (112, 157), "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53),
    "mknod": (133, -1), "mknodat": (259, 33), "truncate": (76, 45), "utime": (132, -1),
    "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88), "setpriority": (141, 140),
}  # fmt: skip
"""Further calls of a shell and its tools, whose processes all end with it."""

_ROOM_CALLS: Final[dict[str, tuple[int, int]]] = {
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242),
    "bind": (49, 200), "listen": (50, 201), "sendmsg": (46, 211), "recvmsg": (47, 212),
    "sendmmsg": (307, 269), "recvmmsg": (299, 243), "chown": (92, -1), "fchown": (93, 55),
    "lchown": (94, -1), "fchownat": (260, 54), "fchmodat2": (452, 452), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "inotify_init": (253, -1),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "inotify_rm_watch": (255, 28),
    "membarrier": (324, 283), "mincore": (27, 232),
    "mlock": (149, 228), "munlock": (150, 229), "mlock2": (325, 284), "mlockall": (151, 230),
    "munlockall": (152, 231), "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145),
    "setregid": (114, 143), "setgroups": (116, 159), "setresuid": (117, 147),
    "setresgid": (119, 149), "setfsuid": (122, 151), "setfsgid": (123, 152),
    "setrlimit": (160, 164), "sched_setaffinity": (203, 122), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "sched_getattr": (315, 275),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "tkill": (200, 130),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "sync": (162, 81),
    "syncfs": (306, 267), "ioprio_get": (252, 31), "ioprio_set": (251, 30), "vmsplice": (278, 75),
    "mbind": (237, 235), "set_mempolicy": (238, 237), "personality": (135, 92),
}  # fmt: skip
"""Further calls of ordinary software, in its own namespaces and without capabilities (`seccomp.ROOM`)."""

NUMBERS: Final = OURS | CONDITIONAL | ALLOWED | EXECUTION | PROCESSES | _ROOM_CALLS


EXEC_FD = 255
"""Descriptor of the one file that may be executed. It is above the limit on descriptors: the execution
closes it, and no other file can then take its number."""

OWN_PID = 0x5EC0DE5
"""Placeholder in the program for the process's own id."""

_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x50000
_EPERM, _ENOSYS = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_X32 = 0x40000000  # numbers of a third table, which would bypass the first

_CLONE_THREAD, _CLONE_NEW = 0x10000, 0x7E020000
_FCNTL_DENIED = (8, 10, 15, 1024, 1026)  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY
_IOCTL_ALLOWED = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_PRCTL_ALLOWED = (15, 16)  # PR_SET_NAME, PR_GET_NAME
_PRCTL_OF_PROCESSES = (1, 2, 3, 4, 7, 15, 16, 21, 23, 29, 30, 36, 37, 38, 39, 41, 42)
# and PR_{SET,GET}_{PDEATHSIG,DUMPABLE,TIMERSLACK,CHILD_SUBREAPER,NO_NEW_PRIVS,THP_DISABLE},
# PR_GET_{KEEPCAPS,SECCOMP}, PR_CAPBSET_READ
_O_CREAT, _O_TRUNC, _O_TMPFILE = 0o100, 0o1000, 0o20000000
_AF_UNIX = 1
_AF_OF_ROOM = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: confined by a namespace
_AT_EMPTY_PATH = 0x1000
_AT_SYMLINK_NOFOLLOW = 0x100
_ARCH_SET_FS = 0x1002
_RLIMIT_STACK = 3

_Code = list[tuple[int, int, int, int]]
"""Instructions: (operation, jump if true, jump if false, value); jumps count from the next one."""


def program(machine: str, granted: Mapping[str, str] = {}) -> bytes:
    """Return the program for a machine, with `OWN_PID` in it.

    Args:
        granted: further calls and their actions, such as `ONE_EXEC` or `MANY_PROCESSES`.

    Raises:
        KeyError: there is no table for this machine.
    """
    column, audit = ARCHITECTURES[machine], AUDIT[machine]
    code: _Code = [
        (_LD, 0, 0, _ARCHITECTURE),
        (_JEQ, 1, 0, audit),
        (_RET, 0, 0, _KILL),
        (_LD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32), (_RET, 0, 0, _KILL)]
    code += _search(_actions(column, granted))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _actions(column: int, granted: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return the ranges of call numbers with the same action, in order: (first number, action)."""
    at = {n[column]: "allow" for n in ALLOWED.values()}
    at |= {n[column]: name for name, n in CONDITIONAL.items()}
    at |= {NUMBERS[name][column]: action for name, action in granted.items()}
    at.pop(-1, None)
    actions = [(0, "")]
    for number in range(max(at) + 2):
        action = at.get(number) or ("deny" if number < FIRST_SHARED else "missing")
        if action != actions[-1][1]:
            actions.append((number, action))
    return actions[1:]


def _search(actions: Sequence[tuple[int, str]]) -> _Code:
    """Return code that finds a call's range of numbers by binary search, and takes the range's action.

    It is made from its end, where the actions are: a jump's target then has a known place.
    """
    backwards: _Code = []
    places: dict[str, int] = {}
    for action in sorted({action for _, action in actions}, key=lambda one: one in _RETURNED):
        returned = _RETURNED.get(action)
        block = _BLOCKS[action] if returned is None else [(_RET, 0, 0, returned)]
        backwards += reversed(block)
        places[action] = len(backwards)

    def search(actions: Sequence[tuple[int, str]]) -> int:
        """Put the search of some ranges before the rest; return its place, counted from the end."""
        if len(actions) == 1:
            return places[actions[0][1]]
        middle = len(actions) // 2
        above, below = search(actions[middle:]), search(actions[:middle])
        jumps = len(backwards) - above, len(backwards) - below
        assert max(jumps) < 256, "a jump that far does not fit"
        backwards.append((_JGE, *jumps, actions[middle][0]))
        return len(backwards)

    search(actions)
    return backwards[::-1]


_RETURNED = {
    "allow": _ALLOW,
    "deny": _EPERM,
    "ignore": _ERRNO,
    "missing": _ENOSYS,
    "clone3": _ENOSYS,
}


def _low(argument: int) -> tuple[int, int, int, int]:
    """Return the load of an argument's low half; both architectures are little-endian."""
    return (_LD, 0, 0, 16 + 8 * argument)


def _high(argument: int) -> tuple[int, int, int, int]:
    return (_LD, 0, 0, 20 + 8 * argument)


def _either(argument: int, values: Sequence[int], then: int, otherwise: int) -> _Code:
    """Return code that returns `then` if an argument is one of the values, else `otherwise`."""
    n = len(values)
    tests = [(_JEQ, n - i, 0, value) for i, value in enumerate(values)]
    return [_low(argument), *tests, (_RET, 0, 0, otherwise), (_RET, 0, 0, then)]


def _without(argument: int, flags: int) -> _Code:
    """Return code that allows a call if an argument has none of the flags."""
    return [_low(argument), (_JSET, 0, 1, flags), (_RET, 0, 0, _EPERM), (_RET, 0, 0, _ALLOW)]


def _null(argument: int) -> _Code:
    """Return code that allows a call if an argument is a null pointer."""
    return [
        _low(argument),
        (_JEQ, 0, 2, 0),
        _high(argument),
        (_JEQ, 1, 0, 0),
        (_RET, 0, 0, _EPERM),
        (_RET, 0, 0, _ALLOW),
    ]


_BLOCKS: dict[str, _Code] = {
    "clone": [  # threads in no new namespace only; a fork fails with EAGAIN
        _low(0),
        (_JSET, 1, 0, _CLONE_NEW),
        (_JSET, 1, 0, _CLONE_THREAD),
        (_RET, 0, 0, _ERRNO | errno.EAGAIN),
        (_RET, 0, 0, _ALLOW),
    ],
    "prlimit64": [  # reading limits; setting the stack limit, already ample, is a no-op that succeeds
        _low(2),
        (_JEQ, 0, 3, 0),
        _high(2),
        (_JEQ, 0, 1, 0),
        (_RET, 0, 0, _ALLOW),
        _low(1),
        (_JEQ, 0, 1, _RLIMIT_STACK),
        (_RET, 0, 0, _ERRNO),
        (_RET, 0, 0, _EPERM),
    ],
    "kill": _either(0, [OWN_PID], _ALLOW, _EPERM),
    "tgkill": _either(0, [OWN_PID], _ALLOW, _EPERM),
    "fcntl": _either(1, _FCNTL_DENIED, _EPERM, _ALLOW),
    "ioctl": _either(1, _IOCTL_ALLOWED, _ALLOW, _ERRNO | errno.ENOTTY),
    "sendto": _null(4),  # to the other end of a pair, never to an address
    "socketpair": _either(0, [_AF_UNIX], _ALLOW, _EPERM),
    "prctl": _either(0, _PRCTL_ALLOWED, _ALLOW, _EPERM),
    "execveat": [  # only of the file opened for it, never of a path
        _low(0),
        (_JEQ, 0, 3, EXEC_FD),
        _low(4),
        (_JEQ, 0, 1, _AT_EMPTY_PATH),
        (_RET, 0, 0, _ALLOW),
        (_RET, 0, 0, _EPERM),
    ],
    "arch_prctl": _either(0, [_ARCH_SET_FS], _ALLOW, _ERRNO | errno.EINVAL),
    "seccomp of itself": [  # a filter, without a listener
        _low(0),
        (_JEQ, 0, 3, 1),
        _low(1),
        (_JEQ, 0, 1, 0),
        (_RET, 0, 0, _ALLOW),
        (_RET, 0, 0, _EPERM),
    ],
    "utimensat of a path": [  # never of an open file, which may be the host's
        _low(1),
        (_JEQ, 0, 2, 0),
        _high(1),
        (_JEQ, 3, 0, 0),
        _low(3),
        (_JEQ, 2, 0, 0),
        (_JEQ, 1, 0, _AT_SYMLINK_NOFOLLOW),
        (_RET, 0, 0, _EPERM),
        (_RET, 0, 0, _ALLOW),
    ],
    "prctl of processes": _either(0, _PRCTL_OF_PROCESSES, _ALLOW, _EPERM),
    "socket of a namespace": _either(0, _AF_OF_ROOM, _ALLOW, _ERRNO | errno.EAFNOSUPPORT),
    "clone of processes": _without(0, _CLONE_NEW),
    "open of a file": _without(1, _O_CREAT | _O_TRUNC | _O_TMPFILE),
    "openat of a file": _without(2, _O_CREAT | _O_TRUNC | _O_TMPFILE),
}

NO_NEW_FILES = {
    "open": "open of a file",
    "openat": "openat of a file",
    "openat2": "missing",  # its flags are in memory
    **dict.fromkeys(NAMES_OF_FILES, "deny"),
}
"""Takes away making, emptying, renaming and removing files. For use where nothing else closes folders
that every user may write to."""

OWN_FILES = {
    **dict.fromkeys(("chmod", "fchmodat", "utime", "utimes"), "allow"),
    "utimensat": "utimensat of a path",
}
"""Grants setting modes and times by path. For use below a read-only root whose only writable folder is
the program's own."""

ONE_EXEC = {**{name: name for name in EXECUTION}, "fchmod": "ignore"}
"""Grants the execution of `EXEC_FD`. Setting the mode of an open file is a no-op that succeeds: rustc
sets it on its outputs and fails otherwise, and programs must not change the host owner's files."""

MANY_PROCESSES = {
    **ONE_EXEC,
    **dict.fromkeys((*PROCESSES, "kill", "tgkill"), "allow"),
    "clone": "clone of processes",
}
"""Grants processes, each under the same filter, and the execution of any file in reach. For use in a
PID namespace of their own."""

ROOM = {
    **MANY_PROCESSES,
    **dict.fromkeys(_ROOM_CALLS, "allow"),
    **dict.fromkeys(("landlock_create_ruleset", "landlock_add_rule"), "allow"),
    **dict.fromkeys(("landlock_restrict_self", "prlimit64", "sendto", "socketpair"), "allow"),
    "capset": "allow",  # nobody in a room has capabilities to keep
    "seccomp": "seccomp of itself",
    "prctl": "prctl of processes",
    "socket": "socket of a namespace",
}
"""Grants the calls of ordinary software in its own root, network and PID namespace. Mounts, namespaces,
tracing, keys, BPF, io_uring, kernel modules and clocks stay denied."""
