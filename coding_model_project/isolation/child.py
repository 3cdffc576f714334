"""Child processes that end with this one, and that a terminal's Ctrl-C reaches once, from here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from coding_model_project.isolation.linux import die_with_parent, end_unless_child_of


def start_child(
    command: Sequence[str],
    *,
    log: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, which does not outlive this process.

    Args:
        log: gets its output and its errors, and it gets no input; None leaves it this process's.
        environment: in the place of this process's.
    """
    me = os.getpid()

    def before() -> None:
        die_with_parent().make()
        end_unless_child_of(me)

    return subprocess.Popen(
        command,
        stdin=None if log is None else subprocess.DEVNULL,
        stdout=log,
        stderr=None if log is None else subprocess.STDOUT,
        env=environment,
        start_new_session=True,
        preexec_fn=before,
    )
