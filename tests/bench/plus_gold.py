"""HumanEval+ judged, and a plain process: `python -m tests.bench.plus_gold [DATA]` prints JSON.

The plain process runs each canonical solution in turn and calls it with its inputs, comparing none: the
least that can be done. The judge takes the same programs, in one process each (`isolation: shared`), and
compares. `apart` is the judge with a process per input. Medians over interleaved rounds; the set is
loaded, and its expected values computed, before the first.

Wall times need a machine without other work. The CPU seconds of all processes hold on a busy one too:
divided by its workers, they are the wall time that the judge could have.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from coding_model_project.data.loaders import load
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.retries import Limiter
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Isolation, Problem

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FILE = "HumanEvalPlus.jsonl.gz"

_PLAIN = """
import gzip, json, sys, time
sys.set_int_max_str_digits(0)
rows = [json.loads(line) for line in gzip.open(sys.argv[1], "rt")]
started, cpu, n = time.perf_counter(), time.process_time(), 0
for row in rows:
    space = {}
    exec(row["prompt"] + row["canonical_solution"], space)
    function = space[row["entry_point"]]
    for arguments in row["base_input"] + row["plus_input"]:
        function(*arguments)
        n += 1
print(json.dumps([time.perf_counter() - started, time.process_time() - cpu, n]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Seconds of one way, and the inputs or accepted programs that it counted."""

    wall_s: float
    cpu_s: float
    n: int


def plain(rows: Path) -> Timed:
    """Time one process."""
    done = subprocess.run(
        [sys.executable, "-c", _PLAIN, str(rows)], check=True, stdout=subprocess.PIPE, text=True
    )
    wall_s, cpu_s, n = json.loads(done.stdout.splitlines()[-1])
    return Timed(wall_s=wall_s, cpu_s=cpu_s, n=n)


async def judged(problems: list[Problem], workers: int) -> Timed:
    """Time the judgement of all solutions; counts those accepted."""
    started, before = time.perf_counter(), _cpu_s()
    async with EmbeddedSandbox(workers=workers) as sandbox:
        # As in an evaluation, a program is in the sandbox while others' verdicts are made.
        grader = ExecutionGrader(sandbox, stop_early=True, limiter=Limiter(workers))

        async def one(problem: Problem) -> bool:
            return (await grader.grade_code(problem, problem.gold[0])).passed

        accepted = await asyncio.gather(*map(one, problems))
    return Timed(
        wall_s=time.perf_counter() - started, cpu_s=_cpu_s() - before, n=sum(accepted)
    )  # with the start of the sandbox, and its children waited for


def _cpu_s() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data_folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--apart", action="store_true", help="Also time a process per input.")
    arguments = parser.parse_args()
    rows = (arguments.data_folder / FILE).resolve()
    busy = os.getloadavg()[0]
    problems = list(load("humaneval_plus", path=rows).problems)
    assert all(problem.isolation is Isolation.shared for problem in problems)
    ways = {"plain": lambda: plain(rows), "judged": _judging(problems, arguments.workers)}
    if arguments.apart:
        alone = [replace(problem, isolation=Isolation.per_test) for problem in problems]
        ways["apart"] = _judging(alone, arguments.workers)
    rounds: list[dict[str, Timed]] = []
    for _ in range(arguments.rounds):
        rounds.append({name: time_it() for name, time_it in ways.items()})
        print({k: (round(v.wall_s, 1), round(v.cpu_s, 1)) for k, v in rounds[-1].items()},
              file=sys.stderr, flush=True)  # fmt: skip
    said = {
        "inputs": rounds[0]["plain"].n,
        "accepted": f"{rounds[0]['judged'].n}/{len(problems)}",
        "workers": arguments.workers,
        "load_before": round(busy, 1),
    }
    for name in ways:
        said[f"{name}_s"] = round(median(one[name].wall_s for one in rounds), 1)
        said[f"{name}_cpu_s"] = round(median(one[name].cpu_s for one in rounds), 1)
        if name != "plain":
            wall = median(one[name].wall_s / one["plain"].wall_s for one in rounds)
            cpu = median(one[name].cpu_s / one["plain"].cpu_s for one in rounds)
            said |= {
                f"{name}_ratio": round(wall, 2),
                f"{name}_cpu_ratio_by_worker": round(cpu / arguments.workers, 2),
            }
    print(json.dumps(said))


def _judging(problems: list[Problem], workers: int):
    return lambda: asyncio.run(judged(problems, workers))


if __name__ == "__main__":
    main()
