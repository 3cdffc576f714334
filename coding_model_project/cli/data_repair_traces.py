"""The `data repair-traces` command: write repair demonstrations from rejected programs."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli.common import (
    DataDir,
    Datasets,
    MinTier,
    PerProblem,
    ProblemsFile,
    Split,
    Workers,
    embedded_sandbox,
    given_problems,
)
from coding_model_project.errors import ConfigError
from coding_model_project.isolation.confine import Tier
from coding_model_project.progress import Advance, progress_bar

if TYPE_CHECKING:
    from coding_model_project.data.training.repair_traces import Wrong
    from coding_model_project.data.training.sft_rows import Candidate
    from coding_model_project.grading.execution import ExecutionGrader
    from coding_model_project.grading.prompts import PromptStyle
    from coding_model_project.sandbox.base import Sandbox
    from coding_model_project.types import Problem


def repair_traces(
    evaluations: Annotated[
        list[Path],
        typer.Argument(metavar="EVAL_FOLDER...", help="Evaluations of training problems."),
    ],
    out: Annotated[Path, typer.Option(help="Write the rows to this .parquet file.")],
    problems: ProblemsFile = None,
    dataset: Datasets = None,
    split: Split = None,
    data_dir: DataDir = None,
    n: PerProblem = 4,
    observation_bytes: Annotated[
        int,
        typer.Option(
            help="Show up to N bytes of a failure, like coding.repair.observation_bytes.", min=60
        ),
    ] = 160,
    workers: Workers = None,
    min_tier: MinTier = Tier.seccomp,
) -> None:
    """Write SFT rows: statement, wrong program, observation, right program.

    Wrong programs are samples that fail a hidden test and a public test; the command runs the public
    tests. Right programs are accepted samples of the same problem, else its first gold solution.
    """
    from coding_model_project.data.training.repair_traces import choose_traces, trace_row
    from coding_model_project.data.training.rows import write_rows
    from coding_model_project.evaluation.judged import one_style, read_judged

    if out.suffix != ".parquet":
        raise ConfigError(f"--out={out}: expected a .parquet file")
    known = given_problems(problems, dataset, data_dir, split=split)
    read = [read_judged(path, known) for path in evaluations]
    style = one_style(read)
    for line in filter(None, (one.held_out_line() for one in read)):
        print(line)
    rejected = [one for each in read for one in each.rejected_programs()]
    right: dict[str, list[str]] = defaultdict(list)
    for one in (one for each in read for one in each.accepted_programs()):
        right[one.problem].append(one.code)
    for problem in known.values():
        if problem.id not in right and problem.gold:
            right[problem.id] = [problem.gold[0]]
    candidates = _distinct((one for one in rejected if known[one.problem].public_tests), known)
    if not candidates:
        raise ConfigError(
            f"no repair traces: no problem of the {len(rejected)} rejected samples has public tests"
        )
    sandbox = embedded_sandbox(workers, min_tier)
    wrong = asyncio.run(_observed(candidates, known, style, observation_bytes, sandbox))
    traces = choose_traces(wrong, right, n=n)
    if not traces:
        raise ConfigError(
            f"no repair traces: {len(wrong)} of {len(candidates)} wrong programs fail a public test, and "
            "none of their problems has an accepted sample or a gold solution"
        )
    rows = [trace_row(known[one.wrong.problem], one, style) for one in traces]
    write_rows(out, rows, trains=True)
    errors = Counter(one.wrong.error for one in traces)
    print(f"rejected samples: {len(rejected)}, distinct with public tests: {len(candidates)}")
    print(f"pass the public tests, so they have no observation: {len(candidates) - len(wrong)}")
    print(", ".join(f"{error} {count}" for error, count in errors.most_common()))
    print(f"{out}: {len(rows)} rows")


def _distinct(candidates: Iterable[Candidate], problems: Mapping[str, Problem]) -> list[Candidate]:
    from coding_model_project.data.program_identity import normal_form

    seen: dict[tuple[str, str], Candidate] = {}
    for one in candidates:
        form = normal_form(one.code, problems[one.problem].language)
        seen.setdefault((one.problem, form), one)
    return list(seen.values())


async def _observed(
    candidates: Sequence[Candidate],
    problems: dict[str, Problem],
    style: PromptStyle,
    max_bytes: int,
    sandbox: Sandbox,
) -> list[Wrong]:
    """Return the candidates that fail a public test, in order, with their observations."""
    from coding_model_project.grading.execution import ExecutionGrader

    with progress_bar("public tests", len(candidates)) as advance:
        async with sandbox:
            grader = ExecutionGrader(sandbox, stop_early=True, public=True)
            looked = [
                _look(grader, one, problems[one.problem], style, max_bytes, advance)
                for one in candidates
            ]
            found = await asyncio.gather(*looked)
    return [one for one in found if one is not None]


async def _look(
    grader: ExecutionGrader,
    candidate: Candidate,
    problem: Problem,
    style: PromptStyle,
    max_bytes: int,
    advance: Advance,
) -> Wrong | None:
    from coding_model_project.data.training.repair_traces import Wrong
    from coding_model_project.grading.observation import observation

    verdict = await grader.grade_code(problem, candidate.code)
    message = observation(problem, verdict, style=style, max_bytes=max_bytes)
    advance()
    if message is None:
        return None
    error = str(verdict.error)
    return Wrong(problem=problem.id, code=candidate.code, error=error, observation=message)
