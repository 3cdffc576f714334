"""The reward path under the load of a large training node: no model, canned completions.

    python -m tests.bench.reward_scale [--steps 3] [--prompts 64] [--workers N]...

Makes rows in the schema of SYNTHETIC-1 with 8 to 64 tests on standard input, loads them as its data set,
and gives `CodeRewardManager` a step's samples at once: 16 a prompt, of which half are right, and the
others wrong, crash or do not compile. None is endless: such a program takes its limit of CPU time, which
is the data set's choice and in SYNTHETIC-1 thousands of times what another needs. 64 right programs also
go to verl's `prime_code`, in as many processes as cores. Prints a Markdown table. What nodes of 64 and
128 cores would do is computed from the CPU time per sample, and called so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from tensordict import TensorDict
from verl import DataProto
from verl.utils.reward_score import prime_code

import coding_model_project as cmp
from coding_model_project.data.problems import write_problems
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.sandbox.benchmark import cpu_s
from coding_model_project.verl_ext.rewards.reward_manager import CodeRewardManager
from coding_model_project.verl_ext.trainers.grpo import plain

SAMPLES = 16
"""Samples of a prompt."""
PRIME_PROGRAMS = 64
SHARES = {"right": 50, "wrong": 30, "crashes": 10, "no program": 10}
NODES = (64, 128)
"""Cores of the nodes that are computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem: the sum of the numbers of one remainder, multiplied."""

    divisor: int
    factor: int
    tests: tuple[tuple[str, str], ...]

    def program(self, kind: str, mark: str) -> str:
        """Return a program that ends as `kind` says; `mark` makes it one that no cache knows."""
        rest = 1 if kind == "wrong" else 0
        read = "n = int(input())\nxs = list(map(int, input().split()))\n"
        answer = f"print(sum(x for x in xs if x % {self.divisor} == {rest}) * {self.factor})"
        before = {
            "crashes": "xs[n]\n",
            "no program": "if n\n",
        }
        return f"# {mark}\n{read}{before.get(kind, '')}{answer}\n"


def task(rng: random.Random) -> Task:
    divisor, factor = rng.randint(2, 9), rng.randint(1, 9)
    tests = []
    for _ in range(rng.choice((8, 16, 32, 64))):
        numbers = [rng.randint(-1000, 1000) for _ in range(rng.randint(3, 40))]
        expected = sum(x for x in numbers if x % divisor == 0) * factor
        tests.append((f"{len(numbers)}\n{' '.join(map(str, numbers))}\n", f"{expected}\n"))
    return Task(divisor=divisor, factor=factor, tests=tuple(tests))


def loaded(tasks: list[Task], folder: Path) -> list[cmp.Problem]:
    """Write rows in SYNTHETIC-1's schema, and load them as a user would."""
    rows = folder / "synthetic_1.jsonl"
    with rows.open("w") as file:
        for number, one in enumerate(tasks):
            cases = [
                {"type": "stdin_stdout", "input": given, "output": expected}
                for given, expected in one.tests
            ]
            row = {
                "problem_id": f"vcp_{number}",
                "task_type": "verifiable_code",
                "source": "bench",
                "prompt": f"Read n and n numbers. Print {one.factor} times the sum of those that "
                f"{one.divisor} divides. Task {number}.",
                "verification_info": json.dumps({"language": "python", "test_cases": cases}),
                "gold_standard_solution": f"```python\n{one.program('right', 'gold')}```",
            }
            file.write(json.dumps(row) + "\n")
    return list(cmp.load("synthetic_1", split="train", data_dir=folder))


class Characters:
    """A tokenizer whose tokens are characters, so that decoding costs nothing to speak of."""

    def decode(self, tokens: Any, **_: Any) -> str:
        return "".join(map(chr, tokens))


def sample(problem: str, completion: str, number: int) -> DataProto:
    """Return a generated sample in the form in which verl gives it to a reward manager."""
    response = torch.tensor([list(map(ord, completion))])
    mask = torch.ones(1, response.shape[1] + 1, dtype=torch.int64)
    batch = TensorDict({"responses": response, "attention_mask": mask}, batch_size=1)
    about = {
        "reward_model": np.array([{"ground_truth": problem}]),
        "uid": np.array([str(number)]),
        "session_id": np.array([0]),
        "global_steps": np.array([1]),
        "tool_extra_fields": np.array([{}], dtype=object),
    }
    return DataProto(batch=batch, non_tensor_batch=about)


async def reward_steps(
    steps: list[list[DataProto]], overrides: list[str]
) -> tuple[float, float, float]:
    """Return the wall seconds of all steps, and the CPU seconds of this process and of its sandbox."""
    manager = CodeRewardManager(plain(compose_recipe("grpo", overrides)), Characters())
    await manager.run_single(steps[0][0])  # starts the sandbox
    own, both, started = time.process_time(), cpu_s(), time.perf_counter()
    for samples in steps:
        await asyncio.gather(*map(manager.run_single, samples))
    wall = time.perf_counter() - started
    own = time.process_time() - own
    return wall, own, cpu_s() - both - own


def prime(tasks: list[tuple[str, dict[str, list[str]]]]) -> tuple[float, int]:
    """Judge with verl's `prime_code` in as many processes as cores; return seconds and passes.

    The processes are forked, as those of Ray fork for it: where the start method is another, each of its
    calls imports verl again within its own time limit, and fails.
    """
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        list(pool.map(_prime, tasks[:2]))
        started = time.perf_counter()
        passed = list(pool.map(_prime, tasks))
    return time.perf_counter() - started, sum(passed)


def _prime(job: tuple[str, dict[str, list[str]]]) -> bool:
    return prime_code.compute_score(*job, continuous=True)[0] == 1  # as verl calls it


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=64, help="Prompts of a step. [64]")
    parser.add_argument("--workers", type=int, action="append", help="Sandbox workers. [1, cores]")
    given = parser.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks = [task(rng) for _ in range(given.prompts)]
        problems = loaded(tasks, folder)
        assert len(problems) == len(tasks)
        path = folder / "problems.jsonl"
        write_problems(path, problems)
        jobs = [
            (
                f"```python\n{tasks[n % len(tasks)].program('right', f'prime {n}')}```",
                {
                    "inputs": [test[0] for test in tasks[n % len(tasks)].tests],
                    "outputs": [test[1] for test in tasks[n % len(tasks)].tests],
                },
            )
            for n in range(PRIME_PROGRAMS)
        ]
        seconds, passed = prime(jobs)
        print(
            f"load before: {psutil.getloadavg()[0]:.1f}; {given.prompts} x {SAMPLES} samples a step"
        )
        print("| | samples/s | CPU ms a sample: judge's process | sandbox |\n|---|---|---|---|")
        n, own, boxed = SAMPLES * given.prompts * given.steps, 0.0, 0.0
        for workers in given.workers or sorted({1, os.cpu_count() or 1}):
            steps = [
                [
                    sample(
                        problem.id,
                        f"```python\n{one.program(kind, f'{workers} {step} {number}')}```",
                        number,
                    )
                    for one, problem in zip(tasks, problems, strict=True)
                    for number, kind in enumerate(
                        rng.choices(list(SHARES), list(SHARES.values()), k=SAMPLES)
                    )
                ]
                for step in range(given.steps)
            ]
            overrides = [
                "hardware=cpu",
                f"coding.sandbox.workers={workers}",
                f"coding.problems=[{path}]",
                f"coding.run_dir={folder}",
            ]
            wall, own, boxed = asyncio.run(reward_steps(steps, overrides))
            print(
                f"| {workers} sandbox workers | {n / wall:.0f} | {1000 * own / n:.1f} "
                f"| {1000 * boxed / n:.1f} |",
                flush=True,
            )
        for cores in NODES:
            print(f"| {cores} cores, computed | {cores * n / (own + boxed):.0f} | | |")
        print(f"| one judge's process at most, computed | {n / own:.0f} | | |")
        ours = asyncio.run(right_ones(tasks, problems))
        print(
            f"right programs of {PRIME_PROGRAMS}: this judge {PRIME_PROGRAMS / ours:.1f} programs/s, "
            f"verl's prime_code {PRIME_PROGRAMS / seconds:.1f} ({passed} of them right)"
        )


async def right_ones(tasks: list[Task], problems: list[cmp.Problem]) -> float:
    """Return this judge's seconds for the programs that `prime` judges."""
    numbers = [n % len(tasks) for n in range(PRIME_PROGRAMS)]
    async with cmp.Judge() as judge:
        await judge.grade(problems[0], f"```python\n{tasks[0].program('right', 'start')}```")
        started = time.perf_counter()
        verdicts = await judge.grade_many(
            [problems[n] for n in numbers],
            [
                f"```python\n{tasks[n].program('right', f'ours {mark}')}```"
                for mark, n in enumerate(numbers)
            ],
        )
    assert all(verdict.passed for verdict in verdicts)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
