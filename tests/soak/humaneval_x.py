"""Judge HumanEval-X as its publisher runs it and as we do: the verdicts must be the same.

    python -m tests.soak.humaneval_x [LANGUAGE ...] [--data FOLDER]

Programs are each problem's solution and variants of it with one operator or literal changed, which
mostly fail. The publisher's way (`codegeex/benchmark/execution.py` of THUDM/CodeGeeX) is one file of
solution and tests, compiled and run by the language's own tools, unconfined: nothing here comes from a
model.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import orjson

from coding_model_project.data.loaders import load
from coding_model_project.data.loaders.humaneval_x import LANGUAGES
from coding_model_project.grading.judge import start_graders
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Problem
from tests.processes import ran

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
N_AT_ONCE = 2
TIMEOUT_S = 30.0
CHANGES = (
    (r"<(?![<=\w])", "<="), (r"\+(?![+=])(?<!\+\+)", "-"), (r"==", "!="), (r"\b0\b", "1"),
    (r"\b1\b", "2"), (r"\btrue\b", "false"), (r"&&", "||"), (r"%", "*"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A program, whether its problem's own solution, and the published tests."""

    problem: Problem
    program: str
    tests: str
    is_gold: bool


def cases(name: str, data: Path, n_mutants: int) -> list[Case]:
    """Return each problem's solution, and as many changed ones."""
    loaded = load(name, data_dir=data)
    rows = {}
    for line in subprocess.check_output(["zcat", str(data / f"{name}.jsonl.gz")]).splitlines():
        row = orjson.loads(line)
        rows[f"{name}/{row['task_id'].partition('/')[2]}"] = row
    found = []
    for problem in loaded.problems:
        row, gold = rows[problem.id], problem.gold[0]
        found.append(Case(problem, gold, row["test"], True))
        head = gold.removesuffix(row["canonical_solution"])
        found += [
            Case(problem, head + body, row["test"], False)
            for body in mutants(row["canonical_solution"], n_mutants)
        ]
    return found


def mutants(body: str, n: int) -> list[str]:
    """Return versions of the body with one change each; none if no change applies."""
    made = [re.sub(pattern, new, body, count=1) for pattern, new in CHANGES]
    return list(dict.fromkeys(one for one in made if one != body))[:n]


def published_verdict(case: Case) -> bool:
    """Run one file of program and tests as the publisher does."""
    language = case.problem.language
    with tempfile.TemporaryDirectory() as folder:

        def run(*words: str) -> subprocess.CompletedProcess[str] | None:
            try:
                return ran(words, cwd=folder, timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return None

        def succeeds(*words: str) -> bool:
            ended = run(*words)
            return ended is not None and ended.returncode == 0

        source = Path(folder, {"cpp": "test.cpp", "java": "Main.java", "javascript": "test.js"}.get(
            language, "test.rs"))  # fmt: skip
        source.write_text(f"{case.program}\n{case.tests}")
        match language:
            case "cpp":
                names = (
                    "stdlib.h",
                    "algorithm",
                    "math.h",
                    "stdio.h",
                    "vector",
                    "string",
                    "climits",
                )
                includes = "".join(f"#include <{name}>\n" for name in names)
                source.write_text(includes + source.read_text())
                return succeeds("g++", "-std=c++11", "-w", source.name) and succeeds("./a.out")
            case "java":
                return succeeds("javac", source.name) and succeeds("java", "-cp", ".", "Main")
            case "javascript":
                ended = run("node", source.name)
                return ended is not None and not ended.stderr and not ended.stdout
            case _:
                source.write_text("#![allow(warnings)]\nfn main() {}\n" + source.read_text())
                built = succeeds("rustc", "--edition=2021", "--test", source.name, "-o", "tests")
                return built and succeeds("./tests")


async def our_verdicts(found: list[Case]) -> list[bool]:
    """Judge by the problem's harness, in the sandbox."""
    async with start_graders(EmbeddedSandbox(workers=N_AT_ONCE), at_once=N_AT_ONCE) as graders:
        grading = (graders.hidden.grade_code(case.problem, case.program) for case in found)
        return [verdict.passed for verdict in await asyncio.gather(*grading)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("language", nargs="*", default=["js", "cpp", "rust", "java"])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the publisher's files")
    parser.add_argument("--mutants", type=int, default=1, help="change each solution in N ways")
    given = parser.parse_args()
    n_different = 0
    for language in given.language:
        if language not in LANGUAGES or language == "go":
            parser.error(f"{language}: choose from js, cpp, rust, java")
        found = cases(f"humaneval_x_{language}", given.data, given.mutants)
        began = time.monotonic()
        ours = asyncio.run(our_verdicts(found))
        ours_s, began = time.monotonic() - began, time.monotonic()
        with ThreadPoolExecutor(N_AT_ONCE) as pool:
            theirs = list(pool.map(published_verdict, found))
        theirs_s = time.monotonic() - began
        n_gold = sum(case.is_gold for case in found)
        gold = sum(one for one, case in zip(ours, found, strict=True) if case.is_gold)
        print(
            f"{language}: gold {gold} of {n_gold}; {len(found)} programs, {sum(ours)} accepted by us in "
            f"{ours_s:.0f} s, {sum(theirs)} by the publisher's way in {theirs_s:.0f} s",
            flush=True,
        )
        for case, one, other in zip(found, ours, theirs, strict=True):
            if one != other:
                n_different += 1
                kind = "solution" if case.is_gold else "changed"
                print(f"  {case.problem.id} ({kind}): ours {one}, theirs {other}")
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())
