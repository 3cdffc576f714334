"""Takes from a process, for good, the way to the verifier's files and to the verifier's processes."""

# Runs in whatever Python a room has: see `guard`.

import ctypes
import os
import struct
from contextlib import suppress

RAN = "/.verifier/ran"
"""Made when the candidate's code first runs in the verifier's time; out of that code's reach."""

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # on all architectures
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read directory
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_CLOSED = ("tests", "solution", "logs", ".verifier")


def close(reading_tests):
    """Leave everything as it is but /tests, /solution and /logs/verifier.

    Args:
        reading_tests: /tests may still be read, as by a program that is given its inputs from there.

    Raises:
        OSError: the kernel does not do it.
    """
    with suppress(OSError):  # it was there, or this is not the verifier's phase
        os.close(os.open(RAN, os.O_CREAT | os.O_EXCL, 0o644))
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long

    def call(*arguments):
        result = syscall(*arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    abi = call(_CREATE, None, ctypes.c_size_t(0), 1)
    rights = _RIGHTS.get(abi, (1 << 16) - 1)
    words = [rights] + ([0] if abi >= 4 else []) + ([3] if abi >= 6 else [])
    attributes = struct.pack("%dQ" % len(words), *words)
    rules = call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    allowed = {"/" + name: rights for name in os.listdir("/") if name not in _CLOSED}
    if os.path.isdir("/logs"):
        logs = [name for name in os.listdir("/logs") if name != "verifier"]
        allowed.update(("/logs/" + name, rights) for name in logs)
    if reading_tests:
        allowed["/tests"] = _READ
    for path, granted in allowed.items():
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        if not os.path.isdir(path):
            granted &= _OF_FILES
        call(_ADD, rules, 1, struct.pack("=Qi", granted, fd), 0)
        os.close(fd)
    call(_RESTRICT, rules, 0)
    os.close(rules)
