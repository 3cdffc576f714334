"""HumanEval+ judged, and a plain process: `python -m tests.bench.plus_gold [DATA]` prints JSON.

The plain process runs each canonical solution in turn and calls it with its inputs, comparing none: the
least that can be done. The judge takes the same programs, and compares. Medians over interleaved
rounds; the set is loaded, and its expected values computed, before the first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from coding_model_project.data.loaders import load
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Problem

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FILE = "HumanEvalPlus.jsonl.gz"
ROUNDS = 3

_PLAIN = """
import gzip, json, sys, time
sys.set_int_max_str_digits(0)
rows = [json.loads(line) for line in gzip.open(sys.argv[1], "rt")]
started, n = time.perf_counter(), 0
for row in rows:
    space = {}
    exec(row["prompt"] + row["canonical_solution"], space)
    function = space[row["entry_point"]]
    for arguments in row["base_input"] + row["plus_input"]:
        function(*arguments)
        n += 1
print(json.dumps([time.perf_counter() - started, n]))
"""


def plain_s(rows: Path) -> tuple[float, int]:
    """Return the seconds of one process, and its number of inputs."""
    done = subprocess.run(
        [sys.executable, "-c", _PLAIN, str(rows)], check=True, stdout=subprocess.PIPE, text=True
    )
    seconds, n = json.loads(done.stdout.splitlines()[-1])
    return seconds, n


async def judged_s(problems: list[Problem], workers: int) -> tuple[float, int]:
    """Return the seconds to judge all solutions, and the number of accepted ones."""
    async with EmbeddedSandbox(share_processes=True) as sandbox:
        grader, free = ExecutionGrader(sandbox, stop_early=True), asyncio.Semaphore(workers)

        async def one(problem: Problem) -> bool:
            async with free:
                return (await grader.grade_code(problem, problem.gold[0])).passed

        started = time.perf_counter()
        accepted = await asyncio.gather(*map(one, problems))
        return time.perf_counter() - started, sum(accepted)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data_folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    rows = (arguments.data_folder / FILE).resolve()
    started = time.perf_counter()
    problems = list(load("humaneval_plus", path=rows).problems)
    loaded_s, busy = time.perf_counter() - started, os.getloadavg()[0]
    rounds = []
    for _ in range(ROUNDS):
        (plain, n_inputs), (judged, accepted) = (
            plain_s(rows),
            asyncio.run(judged_s(problems, arguments.workers)),
        )
        rounds.append((plain, judged, accepted, n_inputs))
        print(f"plain {plain:.1f} s, judged {judged:.1f} s", file=sys.stderr, flush=True)
    said = {
        "inputs": rounds[0][3],
        "accepted": f"{rounds[0][2]}/{len(problems)}",
        "load_s": round(loaded_s, 1),
        "plain_s": round(median(one[0] for one in rounds), 1),
        "judged_s": round(median(one[1] for one in rounds), 1),
        "ratio": round(median(one[1] / one[0] for one in rounds), 2),
        "workers": arguments.workers,
        "load_before": round(busy, 1),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
