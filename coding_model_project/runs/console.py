"""Everything a run prints, on the console and in its log."""

from __future__ import annotations

import os
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
    streams = (sys.stdout, sys.stderr)
    before = [os.dup(stream.fileno()) for stream in streams]
    tees = [_tee(stream.fileno(), log) for stream in streams]
    try:
        yield
    finally:
        for stream, saved, tee in zip(streams, before, tees, strict=True):
            stream.flush()
            os.dup2(saved, stream.fileno())
            os.close(saved)
            with suppress(subprocess.TimeoutExpired):  # a child holds it: it ends with the last one
                tee.wait(timeout=5)


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
