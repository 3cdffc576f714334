"""What a program prints: a run's, on the console and in its log, and any, until nobody reads on."""

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
    """Meanwhile, whatever this process and its children print also goes to the end of a file.

    By file descriptors, through two `tee`s, so that it holds for every library and every child. They
    ignore Ctrl-C, after which there is still something to say.
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
            with suppress(subprocess.TimeoutExpired):  # a child holds it: it ends with the last one
                tees[fd].wait(timeout=5)


def _tee(fd: int, log: Path) -> subprocess.Popen[bytes]:
    """Put a `tee` between a file descriptor and where it led."""
    tee = subprocess.Popen(
        ["tee", "--append", "--ignore-interrupts", str(log)],
        stdin=subprocess.PIPE,
        stdout=fd,
        stderr=subprocess.DEVNULL,  # a full disk is the run's to report
        start_new_session=True,
    )
    assert tee.stdin is not None
    os.dup2(tee.stdin.fileno(), fd)
    tee.stdin.close()
    return tee


def quiet_requests() -> None:
    """Keep clients from logging their requests and credentials, which Hydra's handlers would print."""
    for name in ("httpx", "httpcore", "botocore", "aiobotocore"):
        logging.getLogger(name).setLevel(logging.WARNING)


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """A reader that has seen enough, such as `head`, ends the program: exit code 1, without a word.

    So do click and rich, each for what it writes itself; what is still in Python's buffer at the end
    is neither's.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _is_unread(1):
            raise  # another pipe's
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more as it ends
        raise SystemExit(1) from None


def _is_unread(fd: int) -> bool:
    """Whether the reader of a pipe has gone."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
