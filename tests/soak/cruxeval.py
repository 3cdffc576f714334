"""Judge the answers that CRUXEval's authors recorded, and compare with the verdicts that they recorded.

python -m tests.soak.cruxeval CHECKOUT [DATA_FOLDER]

CHECKOUT is a clone of facebookresearch/cruxeval, whose `samples` hold answers of CodeLlama-7B, 10 a task,
and their scores. DATA_FOLDER has cruxeval.jsonl. Prints a table and each difference; exits 1 if there is
one.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coding_model_project.data.loaders import load
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.predictions import PredictionGrader
from coding_model_project.progress import progress_bar
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Problem, Verdict

DATA = Path(__file__).parents[3] / "shared" / "data"
RECORDED = "sample{}_codellama-7b_temp0.2_{}"
AT_ONCE = 8


async def judged(name: str, work: Sequence[tuple[Problem, str]]) -> list[Verdict]:
    free = asyncio.Semaphore(AT_ONCE)
    with progress_bar(name, len(work)) as advance:
        async with EmbeddedSandbox() as sandbox:
            grader = PredictionGrader(ExecutionGrader(sandbox, stop_early=True))

            async def one(problem: Problem, text: str) -> Verdict:
                async with free:
                    verdict = await grader.grade_code(problem, text)
                advance()
                return verdict

            return list(await asyncio.gather(*(one(*given) for given in work)))


def compare(name: str, side: str, checkout: Path, rows: Path) -> tuple[str, list[str]]:
    """Return the row of the table, and a line per difference."""
    samples = checkout / "samples"
    folder = samples / "model_generations" / RECORDED.format("", side)
    answers = _read(folder / "generations.json")
    scored = _read(samples / "evaluation_results" / f"{RECORDED.format('_scored', side)}.json")
    problems = load(name, path=rows).problems
    known: dict[tuple[str, str], bool] = {}
    by_id = {problem.id: problem for problem in problems}
    n_answers = 0
    for problem in problems:
        key = f"sample_{problem.id.split('/')[-1]}"
        verdicts = scored["raw_scored_generations"][key]
        for text, passed in zip(answers[key], verdicts, strict=True):
            known[problem.id, text] = passed
            n_answers += 1
    started = time.monotonic()
    gold = asyncio.run(judged(f"{name}, gold", [(one, one.gold[0]) for one in problems]))
    seconds = time.monotonic() - started
    ours = asyncio.run(judged(name, [(by_id[id], text) for id, text in known]))
    differences = [
        f"| {id} | `{text[:80]}` | {verdict.passed} {verdict.error or ''} | {theirs} |"
        for ((id, text), theirs), verdict in zip(known.items(), ours, strict=True)
        if verdict.passed != theirs
    ]
    rejected = [one.problem_id for one in gold if not one.passed]
    row = (
        f"| {name} | {len(gold) - len(rejected)}/{len(gold)} {' '.join(rejected)} | {seconds:.1f} | "
        f"{n_answers:,} | {len(known):,} | {len(differences)} |"
    )
    return row, differences


def _read(file: Path) -> Any:
    return json.loads(file.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", nargs="?", type=Path, help="clone of facebookresearch/cruxeval")
    parser.add_argument("data_folder", nargs="?", type=Path, default=DATA)
    arguments = parser.parse_args()
    rows = arguments.data_folder / "cruxeval.jsonl"
    if arguments.checkout is None or not rows.exists():
        print(f"left out: {'no CHECKOUT' if arguments.checkout is None else f'no {rows}'}")
        return 0
    compared = [
        compare(name, side, arguments.checkout, rows)
        for name, side in (("cruxeval_o", "output"), ("cruxeval_i", "input"))
    ]
    print("| set | gold accepted | seconds | recorded answers | distinct | other verdicts |")
    print("|---|---|---|---|---|---|")
    print("\n".join(row for row, _ in compared))
    lines = [line for _, differences in compared for line in differences]
    if lines:
        print("\n| problem | answer | ours | recorded |\n|---|---|---|---|")
        print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
