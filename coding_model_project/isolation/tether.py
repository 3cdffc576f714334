"""Runs a command that does not outlive another process. A file of its own, which starts in milliseconds.

    python -I -S tether.py PARENT_PID COMMAND…

A fork of a process with many threads must run no Python, so that a child of such a process makes itself
end with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_CANNOT_START = 127


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(_CANNOT_START)


if __name__ == "__main__":
    main()
