"""A benchmark of trials: the throughput of a trivial task on this machine, and the cost of a trial.

    python -m tests.bench.trials [trials] [concurrency]

The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from coding_model_project.concurrency import in_order
from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import SandboxError
from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.harbor.trial import Trials
from coding_model_project.sandbox.benchmark import cpu_s

TRIVIAL: Mapping[str, str] = {
    "task.toml": "",
    "instruction.md": "Write 42 to /app/answer.\n",
    "environment/Dockerfile": "FROM python:3.12-slim\nWORKDIR /app\n",
    "solution/solve.sh": "#!/bin/bash\necho 42 > /app/answer\n",
    "tests/test.sh": "#!/bin/bash\n"
    "grep -qx 42 /app/answer && echo 1 > /logs/verifier/reward.txt"
    " || echo 0 > /logs/verifier/reward.txt\n",
}
"""Files of a task whose solution and tests are a single command each."""


def write_task(folder: Path, files: Mapping[str, str] = TRIVIAL) -> Path:
    """Write these files into a task's folder, and return it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


async def measure(trials: int, concurrency: int) -> dict[str, float]:
    """Run a trivial task repeatedly with its own solution.

    Returns:
        trials, concurrency, trials_per_minute; cpu_ms_per_trial: CPU time of this process and its
        descendants; load: one-minute load average of the machine when the measurement began.

    Raises:
        SandboxError: a trial did not earn its reward.
        EnvironmentFailed: this machine cannot make environments.
    """
    load = os.getloadavg()[0]
    with TemporaryDirectory(prefix="harbor-bench-") as folder:
        task = load_task(write_task(Path(folder) / "trivial"))
        used_s = cpu_s()
        async with EmbeddedEnvironments() as environments:
            runner = Trials(environments)
            started = time.monotonic()
            work = [(task, Oracle())] * trials
            ended = in_order(work, lambda given: runner.run(*given), at_once=concurrency)
            async for outcome in ended:
                if outcome.rewards != {"reward": 1.0}:
                    raise SandboxError(f"a trivial trial failed: {outcome.line()}")
            wall_s = time.monotonic() - started
        used_s = cpu_s() - used_s
    return {
        "trials": trials,
        "concurrency": concurrency,
        "trials_per_minute": 60 * trials / wall_s,
        "cpu_ms_per_trial": 1000 * used_s / trials,
        "load": load,
    }


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    speed = asyncio.run(measure(*(given + [300, usable_cores()][len(given) :])))
    print(json.dumps({name: round(value, 2) for name, value in speed.items()}))
