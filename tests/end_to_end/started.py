"""A recipe in a process of its own, followed by what its run writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def logged(run_dir: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics: `step` and `data`."""
    path = run_dir / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Started:
    """A recipe that was started.

    Args:
        popen: the fixture, which ends the process with its test.
        run_dir: of the run.
        cwd: its folder, where it was given.
    """

    def __init__(
        self,
        popen: Callable[..., subprocess.Popen[bytes]],
        recipe: str,
        overrides: Sequence[str],
        run_dir: Path,
        log: Path,
        *,
        cwd: Path | None = None,
        **environment: str,
    ) -> None:
        self._run_dir, self._log = run_dir, log
        with log.open("ab") as printed:
            self.process = popen(
                [sys.executable, "-m", f"recipes.{recipe}", *overrides],
                stdout=printed,
                stderr=printed,
                cwd=cwd,
                env=os.environ | environment,
                start_new_session=True,
            )

    @property
    def steps(self) -> list[int]:
        return [line["step"] for line in logged(self._run_dir)]

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait(self, happened: Callable[[], bool]) -> None:
        """Wait until something has happened, which must be before the run ends."""
        while not happened():
            assert self.process.poll() is None, self.output[-3000:]
            time.sleep(0.1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ends(self, number: int) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(300)
