"""Confinement of a program when a verifier executes it: it loses access to /tests and /logs/verifier.

With Landlock only a process itself can restrict itself. So the tracer stops it before the new program's
first instruction, sets its registers for that system call, and restores them afterwards.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

from coding_model_project.harbor.rooms.listener import Call, Listener
from coding_model_project.isolation import linux

_libc = ctypes.CDLL(None, use_errno=True)
_ptrace = _libc.ptrace
_ptrace.restype = ctypes.c_long
_SEIZE, _INTERRUPT, _CONT, _DETACH, _STEP, _GET, _SET = 0x4206, 0x4207, 7, 17, 9, 0x4204, 0x4205
_TRACE_EXEC, _EVENT_EXEC, _EVENT_STOP, _WALL, _GENERAL = 0x10, 4, 128, 0x40000000, 1

_MACHINES = {
    # number of registers; indices of call number, arguments, next instruction, interrupted call; syscall
    "x86_64": (27, 10, (14, 13), 16, 15, b"\x0f\x05"),
    "aarch64": (34, 8, (0, 1), 32, None, b"\x01\x00\x00\xd4"),
}
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read directory
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_CLOSED = ("tests", "solution", "logs", ".verifier")


class NotConfined(OSError):
    """A program that cannot be confined: this machine does not allow it, or it could not be stopped."""


def execute(
    listener: Listener,
    call: Call,
    mark: Callable[[], None],
    *,
    reading_tests: bool = False,
    answer: int = 0,
) -> bool:
    """Let an execution happen, confine the new program, and return whether there was an execution.

    Args:
        answer: an error number for a call other than an execution, by a process with one thread; the
            process is confined from then on.
        mark: called when the program is confined, before its first instruction.
        reading_tests: whether it may read /tests.

    Raises:
        NotConfined: nothing has happened yet, and the call is not answered.
    """
    try:
        rules = _rules(reading_tests=reading_tests)
    except OSError as error:
        raise NotConfined(str(error)) from error
    try:
        descriptor = listener.give(call, rules)
        _trace(_SEIZE, call.pid, _TRACE_EXEC)
    except OSError as error:
        raise NotConfined(str(error)) from error
    finally:
        os.close(rules)
    listener.answer(call, answer)
    try:
        _trace(_INTERRUPT, call.pid)
        executed = _stop(call.pid) == _EVENT_EXEC
        if executed:
            _trace(_INTERRUPT, call.pid)  # again: the stop consumed the first one
            _trace(_CONT, call.pid)
            _stop(call.pid)
        elif not answer:
            _trace(_DETACH, call.pid)
            return False
        _make(
            listener, call.pid, ("landlock_restrict_self", descriptor, 0), ("close", descriptor, 0)
        )
        mark()
        _trace(_DETACH, call.pid)
    except OSError:
        with suppress(ProcessLookupError):  # it must run nothing unconfined
            os.kill(call.pid, signal.SIGKILL)
    return True


def _stop(pid: int) -> int:
    """Wait until a process stops, and return the event.

    Raises:
        OSError: the process ended.
    """
    _, status = os.waitpid(pid, _WALL)
    if not os.WIFSTOPPED(status):
        raise ProcessLookupError(f"{pid} ended")
    return status >> 16


def _trace(request: int, pid: int, data: int | ctypes.Array[ctypes.c_char] | None = None) -> None:
    address = _GENERAL if request in (_GET, _SET) else 0
    ready = data if isinstance(data, ctypes.Array) else ctypes.c_long(data or 0)
    if _ptrace(ctypes.c_long(request), ctypes.c_long(pid), ctypes.c_long(address), ready) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "ptrace")


def _make(listener: Listener, pid: int, *calls: tuple[str, int, int]) -> None:
    """Make a stopped process run system calls, then restore its state.

    Raises:
        OSError: a call failed.
    """
    count, number, arguments, at, interrupted, instruction = _MACHINES[linux.MACHINE]
    shape = struct.Struct(f"={count}Q")
    memory = ctypes.create_string_buffer(shape.size)
    vector = ctypes.create_string_buffer(
        struct.pack("=QQ", ctypes.addressof(memory), shape.size), 16
    )
    _trace(_GET, pid, vector)
    before = shape.unpack(memory.raw)
    code = os.open(f"{pid}/mem", os.O_RDWR | os.O_CLOEXEC, dir_fd=listener.proc)
    try:
        original = os.pread(code, len(instruction), before[at])
        os.pwrite(code, instruction, before[at])
        for name, first, second in calls:
            registers = list(before)
            registers[number] = linux.number(name)
            registers[arguments[0]], registers[arguments[1]] = first, second
            if interrupted is not None:
                registers[interrupted] = (1 << 64) - 1
            _put(pid, memory, vector, shape.pack(*registers))
            _trace(_STEP, pid)
            _stop(pid)
            _trace(_GET, pid, vector)
            result = shape.unpack(memory.raw)[number if interrupted is not None else arguments[0]]
            if result:
                raise OSError(f"{name} failed in the program to confine")
        os.pwrite(code, original, before[at])
    finally:
        os.close(code)
    _put(pid, memory, vector, shape.pack(*before))


def _put(
    pid: int, memory: ctypes.Array[ctypes.c_char], vector: ctypes.Array[ctypes.c_char], data: bytes
) -> None:
    ctypes.memmove(memory, data, len(data))
    _trace(_SET, pid, vector)


def _rules(*, reading_tests: bool) -> int:
    """Return a descriptor of Landlock rules that deny only /tests, /solution and /logs/verifier.

    Raises:
        OSError: the kernel does not support Landlock.
    """
    abi = linux.landlock_abi()
    rights = _RIGHTS.get(abi, (1 << 16) - 1)
    words = [rights] + ([0] if abi >= 4 else []) + ([3] if abi >= 6 else [])
    attributes = struct.pack(f"={len(words)}Q", *words)
    rules = linux.call("landlock_create_ruleset", attributes, len(attributes), 0)
    try:
        for path, granted in _granted(rights, reading_tests=reading_tests):
            with suppress(FileNotFoundError):
                _grant(rules, path, granted)
    except OSError:
        os.close(rules)
        raise
    return rules


def _granted(rights: int, *, reading_tests: bool) -> Sequence[tuple[str, int]]:
    found = [(f"/{name}", rights) for name in os.listdir("/") if name not in _CLOSED]
    with suppress(OSError):
        found += [(f"/logs/{name}", rights) for name in os.listdir("/logs") if name != "verifier"]
    if reading_tests:
        found.append(("/tests", rights & _READ))
    return found


def _grant(rules: int, path: str, granted: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.path.islink(path):
            return
        if not os.path.isdir(path):
            granted &= _OF_FILES
        linux.call("landlock_add_rule", rules, 1, struct.pack("=Qi", granted, fd), 0)
    finally:
        os.close(fd)
