"""Evaluations as child processes, at most one on each device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from coding_model_project.isolation.child import await_end, start_child
from coding_model_project.redaction import redacted

_GRACE_S = 15.0
"""Seconds for an interrupted evaluation to write its results."""

_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT")
"""Variables that would make another environment's Python load our libraries."""

Device = str | None
"""Value of CUDA_VISIBLE_DEVICES; None keeps the variable unchanged."""


@dataclass(slots=True)
class Child:
    """A sequence of commands, which ends with the first that fails."""

    key: str
    commands: list[Sequence[str]]
    log: Path
    device: Device
    started: float = field(default_factory=time.monotonic)
    process: subprocess.Popen[bytes] | None = None

    def poll(self) -> int | None:
        """Start the next command if one ended; return the exit code after the last or a failed one."""
        if self.process is not None:
            code = self.process.poll()
            if code is None or code != 0 or not self.commands:
                return code
        self._start(self.commands.pop(0))
        return None

    def _start(self, command: Sequence[str]) -> None:
        foreign = _OURS if command[0] != sys.executable else ()
        environment = {name: value for name, value in os.environ.items() if name not in foreign}
        if self.device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.device
        with self.log.open("ab") as log:
            log.write(f"$ {redacted(' '.join(command))}\n".encode())
            log.flush()
            self.process = start_child(command, log=log, environment=environment)

    def stop(self) -> None:
        """Interrupt the current command, then kill its whole process group."""
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            await_end(process, _GRACE_S)
        with suppress(ProcessLookupError):  # a leftover server would occupy the device
            os.killpg(process.pid, signal.SIGKILL)

    @property
    def last_words(self) -> str:
        """Last nonempty line of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


class Children:
    """Child processes, at most one per device. Leaving stops running ones."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._free = list(devices)
        self._running: list[Child] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running:
            child.stop()

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    @property
    def are_idle(self) -> bool:
        return not self._running

    def start(self, key: str, commands: list[Sequence[str]], log: Path) -> None:
        """Start commands on a free device."""
        child = Child(key=key, commands=commands, log=log, device=self._free.pop(0))
        self._running.append(child)
        child.poll()

    def collect(self, ended: Callable[[Child, int], None]) -> None:
        """Call `ended` with each ended child and its exit code, and free its device."""
        for child in list(self._running):
            code = child.poll()
            if code is not None:
                child.stop()
                self._running.remove(child)
                self._free.append(child.device)
                ended(child, code)
