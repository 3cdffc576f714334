"""Everything a run prints, on the console and in its log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def copy_output_to(log: Path) -> None:
    """From now on, whatever this process and its children print also goes to the end of a file.

    By file descriptors, through two `tee`s, so that it holds for every library and every child. They
    end when the last process that may print has ended, and ignore Ctrl-C, which prints too.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        tee = subprocess.Popen(
            ["tee", "--append", "--ignore-interrupts", str(log)],
            stdin=subprocess.PIPE,
            stdout=stream.fileno(),
            stderr=subprocess.DEVNULL,  # a full disk is the run's to report
            start_new_session=True,
        )
        assert tee.stdin is not None
        os.dup2(tee.stdin.fileno(), stream.fileno())
        tee.stdin.close()
