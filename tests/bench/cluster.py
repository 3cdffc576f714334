"""Judging on two nodes beside one, each node kept to one core: `python -m tests.bench.cluster [DATA]`.

A cluster of one node and one of two judge the gold solutions of HumanEval and MBPP, and mutants of them,
in alternating rounds. The driver, which hands out the work, is kept to the first node's core too. Nodes
are machines in namespaces (`tests.cluster.rig`); without root or with `--local`, raylets of this machine.
Seconds are those of judging, without the start of Ray and of the judges. The last line is JSON: medians,
the ratio, whether all verdicts were equal, and the load of the machine before each round.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from coding_model_project.data.loaders import load
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.data.quality.mutants import mutants
from coding_model_project.types import Limits, Problem

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SETS = {"humaneval": "HumanEval.jsonl.gz", "mbpp_reg": "sanitized-mbpp.json"}
LIMITS = Limits(cpu_s=1.0, wall_s=60.0)
"""The CPU limit bounds mutants that never end; the wall limit is high, for a loaded machine."""

Run = Callable[[Sequence[str]], str]
"""A function that runs a command as the driver on a cluster's first node, and returns its output."""


def programs(data: Path, n_mutants: int, limit: int | None) -> list[Problem]:
    """Return problems of which only `gold` is judged, right or wrong."""
    found = []
    for name, file in SETS.items():
        for problem in load(name, path=data / file).problems[:limit]:
            first = problem.gold[0]
            wrong = [mutant.code for mutant in islice(mutants(first), n_mutants)]
            found.append(replace(problem, gold=(first, *wrong), limits=LIMITS))
    return found


async def judge(address: str, problems: Sequence[Problem]) -> dict[str, object]:
    """Judge all on a cluster; return the seconds, and a digest of all verdicts."""
    from coding_model_project.concurrency import each
    from coding_model_project.grading.judge import start_graders
    from coding_model_project.sandbox.sandbox_config import SandboxConfig
    from coding_model_project.verl_ext.cluster.node_sandbox import NodesSandbox
    from coding_model_project.verl_ext.cluster.session import joined

    say = partial(print, file=sys.stderr)
    sandbox = NodesSandbox(SandboxConfig(), join=partial(joined, address), say=say)
    opened = start_graders(sandbox, at_once=1, bare=True, stop_early=True)
    work = [(problem, code) for problem in problems for code in problem.gold]
    async with opened as graders:
        started, cpu = time.perf_counter(), time.process_time()
        verdicts = await each(work, lambda one: graders.hidden.grade_code(*one), at_once=2048)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    said = [
        (one.problem_id, one.code, one.passed, [str(test.error) for test in one.results])
        for one in verdicts
    ]
    return {
        "seconds": seconds,
        "driver_cpu_s": cpu,
        "programs": len(work),
        "accepted": sum(one.passed for one in verdicts),
        "verdicts": hashlib.sha256(repr(said).encode()).hexdigest(),
    }


@contextmanager
def in_namespaces(n: int, keep: Path) -> Iterator[tuple[str, Run]]:
    """Start a cluster of nodes in namespaces; yield its address and its driver function."""
    from tests.cluster.rig import Rig

    with Rig(nodes=n, pinned=True, keep=[keep]) as rig:
        rig.start_ray(cpus=1, gpus=0)

        def run(command: Sequence[str]) -> str:
            done = rig.nodes[0].run(command, timeout_s=600)
            assert done.returncode == 0, done.output
            return done.output

        yield rig.address, run


@contextmanager
def as_raylets(n: int) -> Iterator[tuple[str, Run]]:
    """Start a cluster of raylets on this machine."""
    from tests.ray_nodes import ray_nodes

    cores = sorted(os.sched_getaffinity(0))[:n]
    with ray_nodes([{core} for core in cores]) as nodes:

        def run(command: Sequence[str]) -> str:
            pinned = ["taskset", "-c", str(cores[0]), sys.executable, *command[1:]]
            return subprocess.run(
                pinned, env=nodes.environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        yield nodes.address, run


def compare(folder: Path, data: Path, asked: argparse.Namespace) -> dict[str, object]:
    """Measure both clusters in alternating rounds."""
    from tests.cluster import rig

    local = asked.local or rig.why_not() is not None
    file = folder / "problems.jsonl"
    write_problems(file, programs(data, asked.mutants, asked.limit))
    rounds: dict[int, list[dict[str, object]]] = {1: [], 2: []}
    load = []
    one, two = (as_raylets(n) if local else in_namespaces(n, folder) for n in rounds)
    with one as alone, two as both:
        for _ in range(asked.rounds):
            for n, (address, run) in zip(rounds, (alone, both), strict=True):
                load.append(round(os.getloadavg()[0], 2))
                driver = ["python", "-m", "tests.bench.cluster", "--driver", address, str(file)]
                rounds[n].append(json.loads(run(driver).splitlines()[-1]))
                print(f"{n} node(s): {rounds[n][-1]}", file=sys.stderr)
    seconds = {n: [float(str(one["seconds"])) for one in found] for n, found in rounds.items()}
    every = [one for found in rounds.values() for one in found]
    ratios = [before / after for before, after in zip(seconds[1], seconds[2], strict=True)]
    return {
        "nodes": "raylets" if local else "namespaces",
        "programs": every[0]["programs"],
        "accepted": every[0]["accepted"],
        "one_node_s": round(median(seconds[1]), 2),
        "two_nodes_s": round(median(seconds[2]), 2),
        "ratio": round(median(ratios), 3),
        "ratios": [round(one, 3) for one in ratios],
        "equal": len({one["verdicts"] for one in every}) == 1,
        "load": load,
        "cores": os.cpu_count(),
    }


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=DATA)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mutants", type=int, default=3, help="of each gold solution")
    parser.add_argument("--limit", type=int, help="problems of each set")
    parser.add_argument("--local", action="store_true", help="raylets, not namespaces")
    parser.add_argument("--driver", metavar="ADDRESS", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.driver:
        print(json.dumps(asyncio.run(judge(asked.driver, list(read_problems(asked.data))))))
        return
    with tempfile.TemporaryDirectory(prefix="bench-cluster-", dir="/tmp") as folder:
        print(json.dumps(compare(Path(folder), asked.data, asked)))


if __name__ == "__main__":
    main()
