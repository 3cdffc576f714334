"""How many trials of a trivial task this machine gets through, and what one costs."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from coding_model_project.errors import SandboxError
from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.environment.factory import EmbeddedEnvironments
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.grade_tasks import grade
from coding_model_project.harbor.trial import Trials

TRIVIAL: Mapping[str, str] = {
    "task.toml": "",
    "instruction.md": "Write 42 to /app/answer.\n",
    "environment/Dockerfile": "FROM python:3.12-slim\nWORKDIR /app\n",
    "solution/solve.sh": "#!/bin/bash\necho 42 > /app/answer\n",
    "tests/test.sh": "#!/bin/bash\n"
    "grep -qx 42 /app/answer && echo 1 > /logs/verifier/reward.txt"
    " || echo 0 > /logs/verifier/reward.txt\n",
}
"""Files of a task whose solution and tests are one command each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    trials: int
    concurrency: int
    trials_per_minute: float
    cpu_ms_per_trial: float
    """Of this process and all it started."""
    load: float
    """Of the machine as the measurement began: processes that ran or waited to, over a minute."""


def write_task(folder: Path, files: Mapping[str, str] = TRIVIAL) -> Path:
    """Make a task's folder of these files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


async def measure(trials: int, concurrency: int) -> Speed:
    """Run a trivial task many times over with its own solution.

    Raises:
        SandboxError: a trial did not earn its reward.
        EnvironmentFailed: environments cannot be made here.
    """
    load = os.getloadavg()[0]
    with TemporaryDirectory(prefix="harbor-bench-") as folder:
        task = load_task(write_task(Path(folder) / "trivial"))
        cpu_s = _cpu_s()
        async with EmbeddedEnvironments() as environments:
            runner = Trials(environments)
            started = time.monotonic()
            async for graded in grade(
                [task] * trials, runner, lambda _: Oracle(), concurrency=concurrency
            ):
                if graded.rewards != {"reward": 1.0}:
                    raise SandboxError(f"a trivial trial went wrong: {graded.line()}")
            wall_s = time.monotonic() - started
        cpu_s = _cpu_s() - cpu_s
    return Speed(
        trials=trials,
        concurrency=concurrency,
        trials_per_minute=60 * trials / wall_s,
        cpu_ms_per_trial=1000 * cpu_s / trials,
        load=load,
    )


def _cpu_s() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)
