"""Ray nodes of this machine, each with a raylet of its own, for tests and measurements.

`ray stop` would end every Ray of the machine: nodes are ended by their own processes here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

RAY = Path(sys.executable).with_name("ray")
"""The command of this environment."""
_STARTS_IN_S = 60


@dataclass
class RayNodes:
    """A head and the nodes that joined it."""

    address: str
    started: list[subprocess.Popen[bytes]]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command that works on them."""
        return os.environ | {"RAY_ADDRESS": self.address}

    def kill(self, number: int) -> None:
        """Kill all of a node at once, as a loss of power does."""
        _end(self.started[number], at_once=True)


@contextmanager
def ray_nodes(
    cores: Sequence[set[int] | None], *more: str, env: dict[str, str] | None = None
) -> Iterator[RayNodes]:
    """Start a node for each set of cores that it is pinned to; None is all of them.

    Args:
        more: options of `ray start` on each node.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp"))
        port = _free_port()
        nodes = RayNodes(address=f"127.0.0.1:{port}", started=[])
        for number, pinned in enumerate(cores):
            where = ["--address", nodes.address]
            if number == 0:
                where = ["--head", f"--port={port}", f"--temp-dir={folder}"]
                where.append("--include-dashboard=false")
            command = [
                *(str(RAY), "start", "--block", "--disable-usage-stats", *where),
                *("--node-ip-address=127.0.0.1", "--object-store-memory=80000000"),
                *(f"--num-cpus={len(pinned or os.sched_getaffinity(0))}", *more),
            ]
            if pinned:
                command = ["taskset", "-c", ",".join(map(str, pinned)), *command]
            log = stack.enter_context(Path(folder, f"node-{number}.log").open("wb"))
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
            nodes.started.append(process)
            stack.callback(_end, process)
            _wait(process, Path(log.name))
        yield nodes


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _STARTS_IN_S
    while b"Ray runtime started" not in log.read_bytes():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes], *, at_once: bool = False) -> None:
    if process.poll() is not None:
        return
    family = psutil.Process(process.pid).children(recursive=True)
    if not at_once:
        process.terminate()
        psutil.wait_procs(family, timeout=10)
    for one in [psutil.Process(process.pid), *family] if process.poll() is None else family:
        if one.is_running():
            one.kill()
    process.wait()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]
