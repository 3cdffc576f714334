"""The filter of tests, run by an interpreter of its instructions: both architectures, on either."""

import errno
import struct
from collections.abc import Mapping

import pytest

from coding_model_project.isolation import seccomp
from tests.tables import tables

ALLOWED = "allowed"
KILLED = "killed"
MACHINES = list(seccomp.ARCHITECTURES)


def verdict(
    machine: str,
    number: int,
    *arguments: int,
    audit: int | None = None,
    granted: Mapping[str, str] = {},
) -> str | int:
    """One of allowed and killed, or the error a call gets."""
    audit = seccomp.AUDIT[machine] if audit is None else audit
    filled = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, audit, 0, *(a & (1 << 64) - 1 for a in filled))
    program = list(struct.iter_unpack("<HBBI", seccomp.program(machine, granted)))
    at = accumulator = 0
    while True:
        operation, yes, no, value = program[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x05:
                at += value
            case 0x15:
                at += yes if accumulator == value else no
            case 0x35:
                at += yes if accumulator >= value else no
            case 0x45:
                at += yes if accumulator & value else no
            case 0x06:
                return _returned(value)
            case _:
                raise AssertionError(f"operation {operation:#x}")


def _returned(value: int) -> str | int:
    if value == 0x7FFF0000:
        return ALLOWED
    return KILLED if value == 0x80000000 else value & 0xFFFF


def call(machine: str, name: str, *arguments: int, granted: Mapping[str, str] = {}) -> str | int:
    number = seccomp.NUMBERS[name][seccomp.ARCHITECTURES[machine]]
    return verdict(machine, number, *arguments, granted=granted)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_gets_what_the_tables_say(machine):
    column = seccomp.ARCHITECTURES[machine]
    allowed = {numbers[column] for numbers in seccomp.ALLOWED.values()}
    conditional = {numbers[column] for numbers in seccomp.CONDITIONAL.values()}
    for number in range(600):
        if number in conditional:
            continue
        error = errno.EPERM if number < seccomp.FIRST_SHARED else errno.ENOSYS
        assert verdict(machine, number) == (ALLOWED if number in allowed else error), number
    for number in (0x3FFFFFFF, 0x7FFFFFFF):
        assert verdict(machine, number) in (errno.ENOSYS, KILLED)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "arguments", "expected"), tables("isolation")["by arguments"])
def test_what_depends_on_arguments(machine, name, arguments, expected):
    """An error is named. The number 99356133 is `seccomp.OWN_PID`."""
    assert call(machine, name, *arguments) == getattr(errno, str(expected), expected)


@pytest.mark.parametrize("machine", MACHINES)
def test_files_are_opened_but_neither_made_nor_emptied_nor_renamed(machine):
    def of(name: str, *arguments: int) -> str | int:
        return call(machine, name, *arguments, granted=seccomp.NO_NEW_FILES)

    read, write, make, empty, unnamed = 0, 0o2, 0o101, 0o1001, 0o20200002
    for flags in (read, write, make, empty, unnamed):
        expected = ALLOWED if flags in (read, write) else errno.EPERM
        assert of("openat", -100, 0x1000, flags) == expected
        if machine == "x86_64":
            assert of("open", 0x1000, flags) == expected
    for name in seccomp.NAMES_OF_FILES:
        if seccomp.NUMBERS[name][seccomp.ARCHITECTURES[machine]] >= 0:
            assert of(name) == errno.EPERM
    assert of("openat2") == errno.ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_files_of_its_own_are_changed_by_path_only(machine):
    assert call(machine, "utimensat", -100, 0x1000) == errno.EPERM
    path, times, no_follow, empty_path = 1 << 32, 0x2000, 0x100, 0x1000
    for flags, expected in ((0, ALLOWED), (no_follow, ALLOWED), (empty_path, errno.EPERM)):
        assert (
            call(machine, "utimensat", -100, path, times, flags, granted=seccomp.OWN_FILES)
            == expected
        )
        assert (
            call(machine, "utimensat", 1, 0, times, flags, granted=seccomp.OWN_FILES) == errno.EPERM
        )
    assert call(machine, "fchmodat", -100, path, 0o777, granted=seccomp.OWN_FILES) == ALLOWED
    for name in ("fchmod", "fchown", "fchownat", "fsetxattr"):
        assert call(machine, name, 1, granted=seccomp.OWN_FILES) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_other_architectures_are_killed(machine):
    (other,) = (seccomp.AUDIT[m] for m in MACHINES if m != machine)
    for audit in (other, 0x40000003):  # and i386's
        assert verdict(machine, 1, audit=audit) == KILLED
    assert verdict("x86_64", 0x40000000 | 1) == KILLED  # x32


@pytest.mark.parametrize("machine", MACHINES)
def test_the_program_is_one_the_kernel_takes(machine):
    program = list(struct.iter_unpack("<HBBI", seccomp.program(machine)))
    assert len(program) < 4096
    assert program[-1][0] == 0x06
    for at, (operation, yes, no, value) in enumerate(program):
        assert operation in (0x20, 0x05, 0x15, 0x35, 0x45, 0x06)
        furthest = value if operation == 0x05 else max(yes, no)
        assert operation == 0x06 or at + 1 + furthest < len(program)


def test_tables():
    for column in seccomp.ARCHITECTURES.values():
        numbers = [n[column] for n in seccomp.NUMBERS.values() if n[column] >= 0]
        assert len(numbers) == len(set(numbers))
    for x86, arm in seccomp.NUMBERS.values():
        assert x86 == arm or max(x86, arm) < seccomp.FIRST_SHARED
