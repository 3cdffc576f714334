"""A program's output: its copy in a run's log, and a clean end when the reader of a pipe leaves."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def output_copied_to(log: Path) -> Iterator[None]:
    """Append the output of this process and its children to a file, besides printing it.

    Two `tee` processes on the file descriptors catch the output of every library and child. They ignore
    Ctrl-C and SIGTERM, which Slurm sends to every process of a job, because this process still prints
    after it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    before = {fd: os.dup(fd) for fd in (1, 2)}
    tees = {fd: _tee(fd, log) for fd in before}
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for fd, saved in before.items():
            os.dup2(saved, fd)
            os.close(saved)
            with suppress(subprocess.TimeoutExpired):  # a child still writes to it
                tees[fd].wait(timeout=5)


def _tee(fd: int, log: Path) -> subprocess.Popen[bytes]:
    """Insert a `tee` between a file descriptor and its target."""
    tee = subprocess.Popen(
        ["sh", "-c", 'trap "" INT TERM; exec tee -a "$0"', str(log)],
        stdin=subprocess.PIPE,
        stdout=fd,
        stderr=subprocess.DEVNULL,  # the run reports a full disk
        start_new_session=True,
    )
    assert tee.stdin is not None
    os.dup2(tee.stdin.fileno(), fd)
    tee.stdin.close()
    return tee


def quiet_requests() -> None:
    """Stop clients from logging requests and credentials, which Hydra's handlers would print."""
    for name in ("httpx", "httpcore", "botocore", "aiobotocore"):
        logging.getLogger(name).setLevel(logging.WARNING)


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Exit silently with code 1 when the reader of standard output, such as `head`, leaves.

    click and rich do the same for their own writes, but not for the rest of Python's buffer at exit.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _is_unread(1):
            raise  # the error is about another pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more at exit
        raise SystemExit(1) from None


def _is_unread(fd: int) -> bool:
    """Return whether the reader of a pipe has left."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
