"""A sentinel that ends everything a run started, whatever kills the run.

Every process of a run inherits the environment variable `CODING_RUN_TOKEN` and a folder for temporary
files. A small sentinel process waits until the run's main process ends in any way. It then ends all
processes that carry the token and removes the folder: vLLM, verl and W&B leave sockets and locks behind.

    python -m coding_model_project.isolation.processes PID TOKEN FOLDER     (the sentinel itself)
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOKEN = "CODING_RUN_TOKEN"
_SWEEP_FOR_S = 20.0
_LONGEST_TMPDIR = 60
"""Most characters of `TMPDIR`: a socket's path has at most 107 bytes (unix(7)), vLLM's names have 37."""


@functools.cache  # one sentinel serves all runs of a process
def start_sentinel() -> None:
    """Start the sentinel, and give this process and all it starts later a token and a TMPDIR."""
    token = secrets.token_hex(8)
    folder = _temporary_files(token)
    _watch(token, folder)
    os.environ[TOKEN] = token


def stand_in(token: str, folder: str) -> None:
    """Start a sentinel for a run's processes on another node than its main process's.

    Processes that carry the token here end with this process.

    Args:
        folder: as returned by `own_temporary_files` on the run's node; the sentinel removes it.
    """
    from coding_model_project.contained import is_ours  # here: the sentinel has no packages
    from coding_model_project.errors import StorageError

    if folder:
        with contextlib.suppress(FileExistsError):
            Path(folder).mkdir(mode=0o700, parents=True)
        if not is_ours(Path(folder)):
            raise StorageError(f"{folder}: another user made it on this node; start again")
    _watch(token, folder)


def _watch(token: str, folder: str) -> None:
    """Start a sentinel that is no child of this process: Ray's workers kill their children at exit."""
    subprocess.run(
        [sys.executable, "-S", __file__, str(os.getpid()), token, folder],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name != TOKEN},
        close_fds=True,
    )


def _temporary_files(token: str) -> str:
    """Make the run's folder for temporary files; return its path, or "" if it would be too long.

    Ray's logs and compiled kernels keep their usual place, so that they survive the run.
    """
    from coding_model_project.contained import private_folder

    root = tempfile.gettempdir()
    folder = Path(root, _folder_name(token))
    if len(str(folder)) > _LONGEST_TMPDIR:
        return ""
    folder.mkdir(mode=0o700)
    own = private_folder(Path(root))
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{own}/torchinductor")  # torch executes it
    os.environ.setdefault("RAY_TMPDIR", str(own) if _is_anothers(Path(root, "ray")) else root)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return str(folder)


def _is_anothers(folder: Path) -> bool:
    """Return whether another user made Ray's folder, and so could replace the sockets in it."""
    with contextlib.suppress(OSError):
        return folder.lstat().st_uid not in (0, os.getuid())
    return False


def own_temporary_files() -> tuple[str, str]:
    """Return this run's token and its folder for temporary files; "" for a missing one."""
    token, folder = os.environ.get(TOKEN, ""), os.environ.get("TMPDIR", "")
    return token, folder if token and Path(folder).name == _folder_name(token) else ""


def _folder_name(token: str) -> str:
    return f"run-{token}"


def carriers(token: str) -> list[int]:
    """Return the ids of processes whose environment carries the token."""
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
    pid, token, folder = int(sys.argv[1]), *sys.argv[2:]
    if os.fork():
        return
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        select.select([fd], [], [])  # readable once the process has ended
    sweep(token)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
