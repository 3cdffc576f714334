"""Nothing a run started outlives it, whatever kills the run.

Every process of a run inherits the environment variable `CODING_RUN_TOKEN`. A small sentinel process
waits for the run's main process to end, in whatever way, and then ends all that carry its token.

    python -m coding_model_project.verl_ext.processes PID TOKEN     (the sentinel itself)
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

TOKEN = "CODING_RUN_TOKEN"
_SWEEP_FOR_S = 20.0


def start_sentinel() -> None:
    """Give this process and all it starts from now on a token, and start the sentinel."""
    token = secrets.token_hex(8)
    subprocess.Popen(
        [sys.executable, "-S", __file__, str(os.getpid()), token],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name != TOKEN},
        close_fds=True,
    )
    os.environ[TOKEN] = token


def carriers(token: str) -> list[int]:
    """Process ids whose environment carries the token."""
    needle = f"{TOKEN}={token}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # gone, or not ours to read
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def sweep(token: str, grace_s: float = 2.0) -> None:
    """End every process that carries the token: SIGTERM first, SIGKILL after `grace_s`."""
    started = time.monotonic()
    while (pids := carriers(token)) and time.monotonic() - started < _SWEEP_FOR_S:
        late = time.monotonic() - started > grace_s
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(0.2)


def main() -> None:
    pid, token = int(sys.argv[1]), sys.argv[2]
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        select.select([fd], [], [])  # readable once the process has ended
    sweep(token)


if __name__ == "__main__":
    main()
