"""The seccomp program of a test, for either architecture: a binary search of the allow-list.

Denied calls return EPERM. Calls newer than the tables return ENOSYS, so that libraries fall back. So does
clone3, so that threads are made by clone, whose flags a filter can see. A call by another architecture's
convention kills the process.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from coding_model_project.isolation import syscalls

EXEC_FD = 255
"""Descriptor of the one file that may be executed. It is above the limit on descriptors: the execution
closes it, and no other file can then take its number."""

OWN_PID = 0x5EC0DE5
"""Placeholder in the program for the process's own id."""

_LD, _JA, _JEQ, _JGE, _JSET, _RET = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
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
    column, audit = syscalls.ARCHITECTURES[machine], syscalls.AUDIT[machine]
    code: _Code = [
        (_LD, 0, 0, _ARCHITECTURE),
        (_JEQ, 1, 0, audit),
        (_RET, 0, 0, _KILL),
        (_LD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32), (_RET, 0, 0, _KILL)]
    search = _Search.over(_actions(column, granted))
    # After the search come its ends: an action, or a jump to the block that decides it.
    ends = sorted(search.actions)
    blocks: _Code = []
    after: _Code = []
    for i, action in enumerate(ends):
        if action in _RETURNED:
            after.append((_RET, 0, 0, _RETURNED[action]))
        else:
            after.append((_JA, 0, 0, len(ends) - i - 1 + len(blocks)))
            blocks += _BLOCKS[action]
    code += search.code({action: search.size + i for i, action in enumerate(ends)}) + after + blocks
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _actions(column: int, granted: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return the ranges of call numbers with the same action, in order: (first number, action)."""
    at = {n[column]: "allow" for n in syscalls.ALLOWED.values()}
    at |= {n[column]: name for name, n in syscalls.CONDITIONAL.items()}
    at |= {syscalls.NUMBERS[name][column]: action for name, action in granted.items()}
    at.pop(-1, None)
    actions = [(0, "")]
    for number in range(max(at) + 2):
        action = at.get(number) or ("deny" if number < syscalls.FIRST_SHARED else "missing")
        if action != actions[-1][1]:
            actions.append((number, action))
    return actions[1:]


class _Search(NamedTuple):
    """A search node: numbers from `bound` on are in `above`, others in `below`."""

    bound: int
    below: _Search | str
    above: _Search | str

    @classmethod
    def over(cls, actions: Sequence[tuple[int, str]]) -> _Search:
        middle = len(actions) // 2
        halves = [
            half[0][1] if len(half) == 1 else cls.over(half)
            for half in (actions[:middle], actions[middle:])
        ]
        return cls(actions[middle][0], *halves)

    @property
    def size(self) -> int:
        """Number of instructions."""
        return 1 + sum(side.size for side in self[1:] if isinstance(side, _Search))

    @property
    def actions(self) -> set[str]:
        return set().union(*(s.actions if isinstance(s, _Search) else {s} for s in self[1:]))

    def code(self, ends: Mapping[str, int], at: int = 0) -> _Code:
        """Return the instructions of this node, which is the search's `at`th.

        Args:
            ends: place of each action after the search.
        """
        jumps: list[int] = []
        below: _Code = []
        for side in (self.below, self.above):
            if isinstance(side, _Search):
                jumps.append(len(below))
                below += side.code(ends, at + 1 + len(below))
            else:
                jumps.append(ends[side] - at - 1)
        assert max(jumps) < 256, "a jump that far does not fit"
        return [(_JGE, jumps[1], jumps[0], self.bound), *below]


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
    **dict.fromkeys(syscalls.NAMES_OF_FILES, "deny"),
}
"""Takes away making, emptying, renaming and removing files. For use where nothing else closes folders
that every user may write to."""

OWN_FILES = {
    **dict.fromkeys(("chmod", "fchmodat", "utime", "utimes"), "allow"),
    "utimensat": "utimensat of a path",
}
"""Grants setting modes and times by path. For use below a read-only root whose only writable folder is
the program's own."""

ONE_EXEC = {**{name: name for name in syscalls.EXECUTION}, "fchmod": "ignore"}
"""Grants the execution of `EXEC_FD`. Setting the mode of an open file is a no-op that succeeds: rustc
sets it on its outputs and fails otherwise, and programs must not change the host owner's files."""

MANY_PROCESSES = {
    **ONE_EXEC,
    **dict.fromkeys((*syscalls.PROCESSES, "kill", "tgkill"), "allow"),
    "clone": "clone of processes",
}
"""Grants processes, each under the same filter, and the execution of any file in reach. For use in a
PID namespace of their own."""

ROOM = {
    **MANY_PROCESSES,
    **dict.fromkeys(syscalls.ROOM, "allow"),
    **dict.fromkeys(("landlock_create_ruleset", "landlock_add_rule"), "allow"),
    **dict.fromkeys(("landlock_restrict_self", "prlimit64", "sendto", "socketpair"), "allow"),
    "capset": "allow",  # nobody in a room has capabilities to keep
    "seccomp": "seccomp of itself",
    "prctl": "prctl of processes",
    "socket": "socket of a namespace",
}
"""Grants the calls of ordinary software in its own root, network and PID namespace. Mounts, namespaces,
tracing, keys, BPF, io_uring, kernel modules and clocks stay denied."""
