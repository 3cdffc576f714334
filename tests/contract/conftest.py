"""A real `sandbox serve` process, as its users start it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

COMMAND = [sys.executable, "-m", "coding_model_project", "sandbox", "serve"]


class ServerProcess:
    """`sandbox serve` on a free port, or again on the one it had."""

    COMMAND: Sequence[str] = COMMAND

    def __init__(self, *options: str) -> None:
        self._options = options
        self._port = "0"
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self._process = subprocess.Popen(
            [*self.COMMAND, "--port", self._port, *self._options], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.match(r"serving on (http://\S+:(\d+)) ", line)
        assert found, f"it said {line!r}"
        self.url, self._port = found[1], found[2]

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait until it ends by itself, and return its exit code."""
        assert self._process is not None
        return self._process.wait(60)

    def kill(self) -> None:
        """Kill it, like a machine that goes away."""
        self.send(signal.SIGKILL)
        self.stop()

    def stop(self) -> int:
        """End it in an orderly way; its exit code, or 0 if it has ended already."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdout is not None
        with process.stdout:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            return process.wait(60)


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """A server of one's own, for those who break it."""
    process = ServerProcess()
    yield process
    process.stop()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[ServerProcess]:
    """A server for those who only use it."""
    process = ServerProcess()
    yield process
    process.stop()


@pytest.fixture(params=["ours", "SANDBOXFUSION_URL"])
def any_server(request, shared_server) -> str:
    """The URL of a server for those who only use it: `sandbox serve`, or one that the variable names."""
    if request.param == "ours":
        return shared_server.url
    return os.environ.get(request.param) or pytest.skip(f"{request.param} names no server")
