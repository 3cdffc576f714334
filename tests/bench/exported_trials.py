"""CPU time of whole trials of exported problems: environment, solution, judgement, clean-up.

    python -m tests.bench.exported_trials [rounds] [tasks]

MBPP's test problems where CODING_DATA_DIR has them, else made ones with three tests each. A round runs
every task once by its own solution, in each of three ways in turn: judged in the embedded sandbox,
judged by its verifier in a room, and, beside them, a trivial task. Times are of all processes, in ms a
trial: the least and the median of the rounds. The last line is JSON, with the machine's load.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from coding_model_project.data.loaders import load
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.export.exporting import export
from coding_model_project.harbor.format.task import Task, load_task
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.harbor.trial import Trials
from coding_model_project.types import Problem
from tests.bench.exported import FORMS, problem
from tests.bench.trials import write_task

MOST_MS = 60.0
"""Limit of a trial's cost."""


def problems(n: int) -> list[Problem]:
    with suppress(ConfigError, DataError):
        if "CODING_DATA_DIR" in os.environ:
            return list(load("mbpp_test").problems[:n])
    made = (problem(FORMS[k % len(FORMS)], 3) for k in range(n))
    return [
        Problem(id=f"bench/{k}", split="train", statement="Add.", limits=one.limits, gold=one.gold,
                tests=one.tests)
        for k, one in enumerate(made)
    ]  # fmt: skip


def cpu_s() -> float:
    """Return the CPU seconds of this process and all its children, including ended ones."""
    me = psutil.Process()
    return sum(sum(times) for times in _times([me, *me.children(recursive=True)]))


def _times(processes: Sequence[psutil.Process]) -> Iterator[Sequence[float]]:
    for one in processes:
        with suppress(psutil.Error):
            found = one.cpu_times()
            yield (found.user, found.system, found.children_user, found.children_system)


async def round_ms(environments: EmbeddedEnvironments, tasks: Sequence[Task]) -> float:
    """Return the milliseconds per trial."""
    before = cpu_s()
    for task in tasks:
        outcome = await Trials(environments).run(task, Oracle())
        assert (outcome.rewards or {}).get("reward") == 1.0, outcome
    return 1000 * (cpu_s() - before) / len(tasks)


async def measure(rounds: int, n_tasks: int) -> dict[str, list[float]]:
    """Measure the times of each round by kind of environment."""
    with TemporaryDirectory(prefix="bench-trials-") as folder:
        exported = [load_task(one) for one in export(problems(n_tasks), Path(folder) / "e").tasks]
        trivial = load_task(write_task(Path(folder) / "trivial"))
        async with AsyncExitStack() as stack:
            made = [EmbeddedEnvironments(), EmbeddedEnvironments(shortcuts=False)]
            fast, slow = [await stack.enter_async_context(one) for one in made]
            ways = {
                "in the sandbox": (fast, exported),
                "by the verifier": (slow, exported),
                "trivial": (fast, [trivial] * len(exported)),
            }
            for environments, tasks in ways.values():  # images, zygotes
                await round_ms(environments, tasks[:2])
            found: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(rounds):
                for name, way in ways.items():
                    found[name].append(await round_ms(*way))
    return found


def main(rounds: int, n_tasks: int) -> int:
    load_before = os.getloadavg()[0]
    found = asyncio.run(measure(rounds, n_tasks))
    for name, values in found.items():
        print(f"{name:16} least {min(values):6.1f}, median {statistics.median(values):6.1f} ms")
    median = statistics.median(found["in the sandbox"])
    said = {name: round(statistics.median(values), 1) for name, values in found.items()}
    print(json.dumps({**said, "rounds": rounds, "load": [load_before, os.getloadavg()[0]]}))
    return int(median > MOST_MS)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    raise SystemExit(main(*(given + [7, 20][len(given) :])))
