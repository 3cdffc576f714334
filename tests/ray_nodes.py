"""Ray nodes of this machine, each with a raylet of its own, for tests and measurements.

`ray stop` would end every Ray of the machine: here nodes are ended by their own processes.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from coding_model_project.launch.device import ON_LOOPBACK
from tests.processes import command_line

_RAY = Path(sys.executable).with_name("ray")
_STARTS_IN_S = 90


class RayNodes:
    """A head, and the nodes that join it.

    Args:
        folder: for their logs and sockets; short, since a socket's path is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = _free_port()
        self._started: list[subprocess.Popen[bytes]] = []
        self.address = f"127.0.0.1:{self._port}"
        # Ray 2.60 asks for a token where one was ever made on this machine.
        # A training in this process may have set the variables of one without other nodes.
        inherited = {name: os.environ[name] for name in os.environ if name not in ON_LOOPBACK}
        self._environment = inherited | {"RAY_AUTH_MODE": "disabled"}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command that works on them."""
        return self._environment | {"RAY_ADDRESS": self.address}

    def start(
        self, cores: set[int] | None, *options: str, env: Mapping[str, str] | None = None
    ) -> None:
        """Start one more node.

        Args:
            cores: that it is pinned to; None is all of them.
            options: of `ray start`.
        """
        number = len(self._started)
        where = ["--address", self.address]
        if number == 0:
            where = ["--head", f"--port={self._port}", f"--temp-dir={self._folder}"]
            where.append("--include-dashboard=false")
        command = [
            *(str(_RAY), "start", "--block", "--disable-usage-stats", *where),
            *("--node-ip-address=127.0.0.1", "--object-store-memory=80000000"),
            *(f"--num-cpus={len(cores or os.sched_getaffinity(0))}", *options),
        ]
        if cores:
            command = ["taskset", "-c", ",".join(map(str, cores)), *command]
        log = self._folder / f"node-{number}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdout=file,
                stderr=file,
                start_new_session=True,
                env=self._environment | dict(env or {}),
            )
        self._started.append(process)
        deadline = time.monotonic() + _STARTS_IN_S
        while b"Ray runtime started" not in log.read_bytes():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)

    def processes(self, word: str) -> list[psutil.Process]:
        """The nodes' processes with a word in their command lines."""
        found = []
        for process in self._started:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(process.pid).children(recursive=True)
        return [one for one in found if word in command_line(one)]

    def kill(self, number: int) -> None:
        """End all of a node at once, as a loss of power does."""
        self._end(self._started[number])

    def end(self) -> None:
        """End all nodes, the head last."""
        for process in reversed(self._started):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        family: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


@contextmanager
def ray_nodes(cores: Sequence[set[int] | None], *options: str) -> Iterator[RayNodes]:
    """Start a node for each set of cores; end them on leaving."""
    with tempfile.TemporaryDirectory(
        prefix="ray-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        nodes = RayNodes(Path(folder))
        try:
            for pinned in cores:
                nodes.start(pinned, *options)
            yield nodes
        finally:
            nodes.end()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]
