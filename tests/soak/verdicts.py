"""10,000 gradings of a mixed set at concurrency 64 on a loaded machine: no verdict may change.

python -m tests.soak.verdicts [GRADINGS]
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle, islice

from coding_model_project.errors import UngradableError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.progress import progress_bar
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.synthetic.tinycode import generate
from coding_model_project.types import Asserts, ErrorType, Limits, Problem, Stdin, Test, Verdict
from tests.tables import tables

GRADINGS = 10_000
AT_ONCE = 64
TASKS = 20
"""Number of tinycode tasks, each with a gold and a known-bad solution."""

LIMITS = Limits(cpu_s=0.5, wall_s=4.0, memory_mb=128, output_kb=64)
ECHO = Problem(
    id="soak/echo",
    split="test",
    statement="Print each line of the input twice.",
    tests=tuple(Test(input=Stdin(f"{n}\n"), expected=f"{n}\n{n}\n") for n in range(3)),
    limits=LIMITS,
)
CHECKED = Problem(
    id="soak/checked",
    split="test",
    statement="f(n) is n squared.",
    tests=(Test(input=Asserts(source="assert f(3) == 9\nassert f(0) == 0", entry_point="f")),),
    limits=LIMITS,
)
HASTY = replace(CHECKED, id="soak/hasty", limits=replace(LIMITS, wall_s=1.0))
PROBLEMS = {"echo": ECHO, "checked": CHECKED, "hasty": HASTY}

Expected = ErrorType | None
WRONG = (ErrorType.wrong_answer, ErrorType.runtime_error)
"""Allowed verdicts of a known-bad solution."""

BY_HAND: list[tuple[Problem, str, Expected]] = [
    (PROBLEMS[name], code, error and ErrorType(error)) for name, code, error in tables("verdicts")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A program and its expected verdict."""

    problem: Problem
    code: str
    errors: tuple[Expected, ...]
    """The allowed errors; the same one must come every time."""


def cases() -> list[Case]:
    draw = random.Random(0)
    made = [Case(problem=problem, code=code, errors=(error,)) for problem, code, error in BY_HAND]
    for task in draw.sample(generate().tasks, TASKS):
        problem = replace(task.problem, limits=LIMITS)
        made.append(Case(problem=problem, code=problem.gold[0], errors=(None,)))
        made.append(Case(problem=problem, code=problem.bad[0], errors=WRONG))
    draw.shuffle(made)
    return made


@contextmanager
def load() -> Iterator[None]:
    """Run a busy process per core inside the context."""
    spawn = multiprocessing.get_context("spawn")
    burning = [spawn.Process(target=_burn, daemon=True) for _ in os.sched_getaffinity(0)]
    for process in burning:
        process.start()
    try:
        yield
    finally:
        for process in burning:
            process.terminate()
            process.join()


def _burn() -> None:
    while True:
        sum(range(10_000))


def essence(verdict: Verdict) -> tuple[str | None, ...]:
    """Return the parts of a verdict that must not change: its error and each test's error."""
    return (verdict.error, *(result.error for result in verdict.results))


async def grade_all(made: list[Case], gradings: int) -> list[Counter[tuple[str | None, ...]]]:
    """Count the verdicts of each case."""
    found: list[Counter[tuple[str | None, ...]]] = [Counter() for _ in made]
    turns = iter(list(islice(cycle(range(len(made))), gradings)))
    with progress_bar("gradings", gradings) as advance:
        async with EmbeddedSandbox() as sandbox:
            print(f"sandbox: {sandbox.identity}")
            grader = ExecutionGrader(sandbox, stop_early=False)

            async def work() -> None:
                for number in turns:
                    case = made[number]
                    try:
                        verdict = await grader.grade_code(case.problem, case.code)
                        found[number][essence(verdict)] += 1
                    except UngradableError as error:
                        found[number][f"ungradable: {error}",] += 1
                    advance()

            await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return found


def main(gradings: int) -> int:
    made = cases()
    started = time.monotonic()
    with load():
        found = asyncio.run(grade_all(made, gradings))
    bad = 0
    for case, verdicts in zip(made, found, strict=True):
        if len(verdicts) > 1 or any(said[0] not in case.errors for said in verdicts):
            bad += 1
            print(f"{case.problem.id}, expected {case.errors}: {dict(verdicts)}\n{case.code!r}")
    kinds = Counter(str(case.errors[0] or "accepted") for case in made)
    result = f"{bad} programs whose verdict is wrong or changes" if bad else "all right, each time"
    print(
        f"{gradings} gradings of {len(made)} programs ({dict(kinds)}) at concurrency {AT_ONCE}, "
        f"{len(os.sched_getaffinity(0))} other processes at full load, "
        f"{time.monotonic() - started:.0f} s: {result}"
    )
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if sys.argv[1:] else GRADINGS))
