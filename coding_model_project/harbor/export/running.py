"""A program's inputs, each run by the forker in processes of its own, and what they left.

Exported tasks' verifiers and post-training's (`harbor.posttrain.verifier`) run programs by it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from coding_model_project.harbor.export.forker import (
    PROGRAM_FILE,
    Forker,
    Lost,
    Process,
    Request,
)

_Made = TypeVar("_Made")

_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
"""Places for a test's folder and files. The first writable one is used."""


class Ran(NamedTuple):
    """The end of a test's processes."""

    code: int | None
    """Exit code of the first, negative for a signal; None if it exceeded its time."""
    answer: bytes | None
    """Its output or answer; None if that is too long."""
    struck: bool = False
    """The program ended or stopped the forker, at this input or an earlier one."""


class Runner:
    """A runner of one program on inputs.

    Args:
        memory_mb: the limit on the address space.
    """

    def __init__(
        self, source: bytes, forker: Forker, *, cpu_s: float, memory_mb: int, output_kb: int
    ) -> None:
        self._source, self._forker = source, forker
        self._limits = cpu_s, memory_mb, output_kb
        self._is_struck = False
        self.max_bytes = output_kb << 10

    def script(self, text: bytes, wall_s: float) -> Ran:
        """Run the program on standard input; the answer is its output.

        Raises:
            Lost: the forker did not answer, and no program can have caused that. So do the other methods.
        """
        return self._run(text, wall_s, Process("script", (0, 1)))

    def call(self, function: str, arguments: Sequence[Any], wall_s: float) -> Ran:
        """Call a function with arguments in `codec`'s form; the answer is its encoded value."""
        asked = json.dumps({"call": function, "args": {"t": arguments}}).encode()
        return self._run(asked, wall_s, Process("call", (0, 3)))

    def asserts(self, sources: Sequence[str], entry_point: str | None, wall_s: float) -> Ran:
        """Run tests that share their state; the answer is a line of JSON for each that ran."""
        asked = {"sources": sources, "entry_point": entry_point, "max_bytes": self.max_bytes}
        to_program, to_tests = os.pipe(), os.pipe()
        return self._run(
            json.dumps(asked).encode(),
            wall_s,
            Process("tests", (0, 3, 4, 5)),
            Process("callee", (3, 4)),
            pipes=(to_tests[0], to_program[1], to_program[0], to_tests[1]),
        )

    def _run(
        self, given: bytes, wall_s: float, *processes: Process, pipes: Sequence[int] = ()
    ) -> Ran:
        if not self._is_struck:
            try:
                return self._tried(given, wall_s, processes, pipes)
            except Lost:
                if not self._forker.is_in_reach:
                    raise
                self._forker.end()
                self._is_struck = True
        else:
            for one in pipes:
                os.close(one)
        return Ran(-signal.SIGKILL, b"", struck=True)

    def _tried(
        self, given: bytes, wall_s: float, processes: Sequence[Process], pipes: Sequence[int]
    ) -> Ran:
        with _folder_with(self._source, self._forker) as folder, _in_files(given, b"") as files:
            code = None
            with suppress(TimeoutError):
                request = Request(folder, *self._limits, wall_s, processes)
                code = self._forker.run(request, (*files, *pipes), passed_on=pipes)
            size = os.fstat(files[1]).st_size
            answer = os.pread(files[1], size, 0) if size <= self.max_bytes else None
        return Ran(code, answer)


@contextmanager
def _folder_with(source: bytes, started: Forker) -> Iterator[str]:
    """Yield a folder with the program. All processes of the test end before it is removed."""
    folder = _somewhere(_new_folder)
    try:
        with open(f"{folder}/{PROGRAM_FILE}", "wb") as program:
            program.write(source)
        yield folder
    finally:
        try:
            started.end_tests()
        finally:
            _remove(folder)


def _somewhere(make: Callable[[str], _Made]) -> _Made:
    """Call `make` with a new path in the first of `_FOLDERS` where that works.

    Raises:
        OSError: it fails in all of them.
    """
    name, error = f"test-{os.urandom(8).hex()}", OSError()
    for folder in _FOLDERS:
        try:
            return make(f"{folder}/{name}")
        except OSError as raised:
            error = raised
    raise error


def _new_folder(path: str) -> str:
    os.mkdir(path)
    os.chmod(path, 0o777)
    return path


def _remove(folder: str) -> None:
    """Remove a test's folder as far as possible, in time linear in its size.

    Does not use `shutil`: a module imported after a program has run may be the program's.
    """
    pending = [folder]
    while pending:
        path = pending.pop()
        with suppress(OSError):
            for entry in list(os.scandir(path)):
                with suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    os.chmod(entry.path, 0o700)
                    moved = f"{folder}-{os.urandom(8).hex()}"  # no path grows too long
                    os.rename(entry.path, moved)
                    pending.append(moved)
            os.rmdir(path)


def _new_file(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return descriptor


@contextmanager
def _in_files(*contents: bytes) -> Iterator[list[int]]:
    """Open unnamed files at their start. Not pipes, which a grandchild could hold open."""
    descriptors = []
    try:
        for content in contents:
            descriptors.append(_somewhere(_new_file))
            with open(descriptors[-1], "wb", closefd=False) as file:
                file.write(content)
            os.lseek(descriptors[-1], 0, os.SEEK_SET)
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
