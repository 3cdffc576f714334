"""Throughput of a SandboxFusion server, by three clients in alternating rounds.

    python -m tests.bench.fusion http://127.0.0.1:8080 [rounds]

`run_code` is a request per test with one keep-alive connection for each of eight programs, `verl` the
client that verl 0.9.1 brings (a request per test as well, eight programs at once), `fusion` is ours, and
`embedded` the sandbox of this machine. The samples of a step are 256 programs of the synthetic tasks.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import httpx

from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.fusion import FusionSandbox, wire
from coding_model_project.synthetic.tinycode import generate
from coding_model_project.types import Limits, Problem, Program, Stdin

SOURCE = "n = int(input())\nprint(sum(int(word) for word in input().split()) + n)"
STDIN, STDOUT = "3\n1 2 3\n", "9\n"
PROGRAMS = {1: 64, 8: 64, 20: 32}
"""Concurrent programs by their number of tests."""

AT_ONCE = 8
SAMPLES = 256

Run = Callable[[int], Awaitable[None]]
"""A function that runs one program on a number of tests."""


def by(sandbox: Sandbox) -> Run:
    """Run programs in this project's sandbox."""

    async def run(tests: int) -> None:
        found = await sandbox.run(Program(source=SOURCE), [Stdin(STDIN)] * tests, Limits())
        assert [one.stdout for one in found] == [STDOUT] * tests

    return run


def by_requests(client: httpx.AsyncClient) -> Run:
    """Send a request per test, one after another."""
    body = wire.run_code(SOURCE, "python", stdin=STDIN, run_s=10.0)

    async def run(tests: int) -> None:
        for _ in range(tests):
            answer = (await client.post("/run_code", json=body)).json()
            assert answer["run_result"]["stdout"] == STDOUT

    return run


def by_verl(url: str, threads: ThreadPoolExecutor) -> Run:
    """Run programs as verl's reward function does."""
    from verl.utils.reward_score.sandbox_fusion.utils import check_correctness

    def judge(tests: int) -> None:
        given = {"inputs": [STDIN] * tests, "outputs": [STDOUT] * tests}
        found, _ = check_correctness(f"{url}/run_code", given, SOURCE, timeout=10)
        assert found == [True] * tests

    async def run(tests: int) -> None:
        await asyncio.get_running_loop().run_in_executor(threads, judge, tests)

    return run


async def seconds(run: Run, tests: int, programs: int, at_once: int) -> float:
    """Measure the seconds of a number of programs."""
    gate = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with gate:
            await run(tests)

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(programs)))
    return time.perf_counter() - started


def samples() -> list[tuple[Problem, str]]:
    """Return right and wrong programs of all tasks, as in training, without time-outs."""
    draw = random.Random(7)
    return [
        (task.problem, draw.choice(task.problem.gold if n % 2 else task.problem.bad))
        for n, task in enumerate(draw.choices(generate().tasks, k=SAMPLES))
    ]


async def of_a_step(sandbox: Sandbox, *, sparse: bool) -> float:
    """Measure the seconds until a step's samples are judged."""
    grader = ExecutionGrader(sandbox, stop_early=sparse)
    started = time.perf_counter()
    await asyncio.gather(*(grader.grade_code(*sample) for sample in samples()))
    return time.perf_counter() - started


async def main(url: str, rounds: int) -> dict[str, list[float]]:
    """Return the measurements by name."""
    found: dict[str, list[float]] = {}

    def keep(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)
        print(f"{name} {value:.1f}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        async with (
            httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as client,
            FusionSandbox([url]) as fusion,
            EmbeddedSandbox() as embedded,
        ):
            sides = {
                "run_code": (by_requests(client), AT_ONCE),
                "verl": (by_verl(url, threads), AT_ONCE),
                "fusion": (by(fusion), 1024),
                "embedded": (by(embedded), 1024),
            }
            for _ in range(rounds):
                for tests, programs in PROGRAMS.items():
                    for name, (run, at_once) in sides.items():
                        slow = name in ("run_code", "verl")
                        n = max(AT_ONCE, 64 // tests) if slow else programs
                        spent = await seconds(run, tests, n, at_once)
                        keep(f"{name}: {tests} tests, tests/s", n * tests / spent)
                for name, (run, _) in sides.items():
                    for _ in range(5):
                        keep(f"{name}: alone, ms", 1000 * await seconds(run, 1, 1, 1))
                for name, sandbox in (("fusion", fusion), ("embedded", embedded)):
                    for sparse in (False, True):
                        kind = "sparse" if sparse else "dense"
                        keep(f"{name}: a step, {kind}, s", await of_a_step(sandbox, sparse=sparse))
    return found


if __name__ == "__main__":
    measured = asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5))
    for name, values in sorted(measured.items(), key=lambda pair: pair[0].split(": ")[::-1]):
        print(f"{name:36} {statistics.median(values):8.1f}  {min(values):.1f} … {max(values):.1f}")
