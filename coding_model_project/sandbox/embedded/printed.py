"""A test's files: those passed to it as arguments, its output, and the frame that reports that."""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from coding_model_project.codec import STDERR_TAIL
from coding_model_project.isolation import linux
from coding_model_project.isolation.confine import Limits, Tier
from coding_model_project.sandbox.embedded import frames
from coding_model_project.sandbox.embedded.frames import Head

if TYPE_CHECKING:
    import socket

FIRST = 4
"""The first descriptor of these files; lower ones are the standard streams and the answer."""


class Given(NamedTuple):
    """Files in the working directory, or open in memory at tiers without one."""

    paths: list[str]
    files: dict[str, bytes]
    descriptors: list[int]


def argument_files(tier: Tier, head: Head, data: bytes) -> Given:
    """Return the files of a request; the caller closes the descriptors."""
    contents = dict(zip(head["arguments"], frames.parts(data, head["sizes"]), strict=True))
    if tier is Tier.namespaces:
        return Given(paths=list(contents), files=contents, descriptors=[])
    descriptors = [in_memory(content) for content in contents.values()]
    paths = [f"/dev/fd/{FIRST + index}" for index in range(len(descriptors))]
    return Given(paths=paths, files={}, descriptors=descriptors)


def in_memory(content: bytes) -> int:
    """Return a descriptor of an in-memory file with this content, at its start."""
    fd = linux.memory_file("file")
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class Outputs(NamedTuple):
    """In-memory output files of limited size, read after their writer has ended: nothing can block."""

    out: int
    err: int
    answer: int

    @classmethod
    def create(cls, limits: Limits, *, appending: bool = False) -> Outputs:
        """Make the files.

        Args:
            limits: those of their writer.
            appending: open them in append mode, so that writers restart at 0 after `empty`.
        """
        n_bytes = 3 * (limits.output_kb << 10)
        made = cls(*(linux.memory_file(name, n_bytes) for name in ("out", "err", "answer")))
        if appending:
            for fd in made.descriptors:
                fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        return made

    @property
    def descriptors(self) -> tuple[int, int, int]:
        return self.out, self.err, self.answer

    def send(
        self,
        channel: socket.socket,
        cap: int,
        ended: frames.Head,
        sizes: tuple[int, int],
        answered: bytes | bytearray | None = None,
    ) -> None:
        """Send the outcome of an input, and the printed output.

        The output is never copied to this process's memory, which later processes inherit.

        Args:
            cap: most bytes of each output.
            sizes: those of the printed output.
            answered: an answer that is not in its file.
        """
        out, err = sizes
        answer = os.fstat(self.answer).st_size if answered is None else len(answered)
        printed, n_answered, tail = min(out, cap), min(answer, cap), min(err, STDERR_TAIL)
        full = ended.get("full", False) or max(out, err, answer) >= cap
        head = {**ended, "full": full, "printed": printed, "answered": n_answered}
        in_memory = memoryview(answered or b"")[:n_answered]
        first = b"" if printed else in_memory
        frames.send_parts(channel, head, first, printed + n_answered + tail)
        _pass_on(channel, self.out, 0, printed)
        if answered is None:
            _pass_on(channel, self.answer, 0, n_answered)
        elif printed:
            channel.sendall(in_memory)
        _pass_on(channel, self.err, err - tail, tail)

    def send_end(
        self,
        channel: socket.socket,
        limits: Limits,
        confined: bool,
        status: int,
        usage: Any,
        killed: str | None,
        started: float,
    ) -> None:
        """Send the outcome of an input whose process has ended, and close the files."""
        ended = {
            "confined": confined,
            "exit": os.waitstatus_to_exitcode(status),
            "killed": killed,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "wall_s": time.monotonic() - started,
        }
        self.send(channel, limits.output_kb << 10, ended, self.sizes())
        self.close()

    def sizes(self) -> tuple[int, int]:
        """Return the number of bytes printed to standard output and to standard error."""
        return os.fstat(self.out).st_size, os.fstat(self.err).st_size

    def empty(self) -> None:
        """Discard the printed output, before the next input."""
        for fd in (self.out, self.err):
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)

    def close(self) -> None:
        for fd in self.descriptors:
            os.close(fd)


def _pass_on(channel: socket.socket, file: int, at: int, n: int) -> None:
    """Send part of a file; send zeros in place of bytes that its writer truncates meanwhile."""
    while n:
        sent = os.sendfile(channel.fileno(), file, at, n)
        if not sent:
            channel.sendall(bytes(n))
            return
        at, n = at + sent, n - sent
