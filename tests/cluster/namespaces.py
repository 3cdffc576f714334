"""Kernel namespaces of a rig's nodes: their first process, and the network between them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")


def unshare(
    host: str, root: Path, *arguments: str, core: int | None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a node's first process, and return `unshare` and that process's id on the host.

    Raises:
        RuntimeError: the process did not start; has its error.
    """
    pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
    init = [sys.executable, "-S", str(Path(__file__).with_name("node_init.py")), host, str(root)]
    log = root / "logs" / f"{host}.log"
    with log.open("ab") as errors:
        unshared = subprocess.Popen(
            [
                *(*pinned, "unshare", *NAMESPACES),
                *("--fork", "--kill-child", "--mount-proc", *init, *arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # only the test gets Ctrl-C, and then ends its nodes
        )
    assert unshared.stdout is not None
    if unshared.stdout.readline() != b"ready\n":
        raise RuntimeError(f"{host} did not start: {log.read_text().strip()}")
    return unshared, psutil.Process(unshared.pid).children()[0].pid


def close(unshared: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a node, which ends it."""
    for pipe in (unshared.stdin, unshared.stdout):
        if pipe is not None:
            pipe.close()


def pid_namespace(pid: int) -> str:
    """Return the name of a process's PID namespace; "" if it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def ip(*arguments: str, inside: int = 0) -> None:
    """Run `ip`, in the network namespace of the process `inside` unless it is 0."""
    into = ["nsenter", f"--net=/proc/{inside}/ns/net"] if inside else []
    run_tool([*into, "ip", *arguments])


def run_tool(command: Sequence[str]) -> None:
    """Run a command.

    Raises:
        RuntimeError: it failed; has its error.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
