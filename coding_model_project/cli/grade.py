"""The `grade` command: completions in, verdicts out."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from coding_model_project import strict_json
from coding_model_project.atomic import write_lines
from coding_model_project.cli import options
from coding_model_project.cli.options import cores, existing_file, publishes
from coding_model_project.config_key import option
from coding_model_project.errors import ConfigError, UngradableError
from coding_model_project.grading.base import Outcome, judge_completions
from coding_model_project.grading.judge import start_graders
from coding_model_project.grading.kinds import KINDS
from coding_model_project.harbor import task_grader
from coding_model_project.progress import progress_bar
from coding_model_project.types import ErrorType, Problem, Verdict

STANDARD = Path("-")
"""Stands for standard input or standard output in place of a file."""
N_REASONS = 5
AT_ONCE = 2048
"""Maximum concurrent completions, enough for all nodes of a cluster."""
NO_FENCE = 0.9
"""Share of completions without code at which --bare is probably missing."""


@publishes
def grade(
    *,
    completions: Path = option(
        ...,
        'Judge {"problem_id": …, "completion": …} lines from this file; - reads standard input.',
        metavar="FILE|-",
    ),
    problems: options.Problems,
    out: Path | None = option(
        None,
        "Write the verdicts to this file, one JSON line per completion; - prints them. "
        "Default: print the summary only.",
        metavar="FILE|-",
    ),
    bare: bool = option(False, "Treat each completion as a program without a code fence."),
    stop_early: bool = option(False, options.STOP_EARLY),
    as_json: bool = option(False, options.AS_JSON),
    sandbox: options.Judging,
    resumable: options.Resumable,
) -> int:
    """Judge completions with their problems' hidden tests, or with their Harbor tasks' verifiers.

    The problems come from --problems FILE or --dataset NAME. With --json the summary is one object:
    judged, accepted, ungradable, errors by type, reasons for ungradable completions.

    Exit code 2 if an input file is invalid, 3 if a completion is ungradable; its line has the reason.
    """
    if as_json and out == STANDARD:
        raise ConfigError("--json and --out - both write to standard output; pass one of them")
    from coding_model_project.evaluation.journal import KeptGrader, kept_results

    known, source = problems.load(), str(problems)
    rows = _read_completions(completions, known, source)
    _check_problems({problem.id: problem for problem, _ in rows}, source)
    if out is not None and out != STANDARD:
        _check_place(out)  # before judging, which may take an hour
    judge = start_graders(
        resumable.sandbox(sandbox),
        at_once=cores(sandbox.workers),
        bare=bare,
        stop_early=stop_early,
        tasks=task_grader,
    )

    async def judged() -> list[Outcome]:
        async with judge as graders:
            settings = f"{graders.hidden.identity} bare={bare} stop_early={stop_early}"
            groups = await judge_completions(
                [problem for problem, _ in rows],
                [[completion] for _, completion in rows],
                KeptGrader(graders.hidden, kept, settings),
                progress=advance,
                max_concurrency=AT_ONCE,
            )
        return [outcome for group in groups for outcome in group]

    with kept_results(resumable.journal) as kept, progress_bar("judging", len(rows)) as advance:
        outcomes = asyncio.run(judged())
    lines = (_row(problem, outcome) for (problem, _), outcome in zip(rows, outcomes, strict=True))
    if out == STANDARD:
        sys.stdout.buffer.writelines(orjson.dumps(line) + b"\n" for line in lines)
    elif out is not None:
        try:
            write_lines(out, lines)
        except OSError as error:
            raise OSError(f"--out: {out}: {error.strerror or error}") from error
    _say(outcomes, out, as_json=as_json)
    verdicts = [outcome for outcome in outcomes if isinstance(outcome, Verdict)]
    n_empty = sum(verdict.error is ErrorType.no_code for verdict in verdicts)
    if not bare and n_empty and n_empty >= NO_FENCE * len(verdicts):
        options.warn(
            f"note: no code found in {n_empty} of {len(verdicts)} completions; if they are plain "
            "programs, pass --bare"
        )
    return 3 if any(isinstance(outcome, UngradableError) for outcome in outcomes) else 0


# ── input ─────────────────────────────────────────────────────────────────────────────────────────


def _read_completions(
    path: Path, known: Mapping[str, Problem], source: str
) -> list[tuple[Problem, str]]:
    if path == STANDARD:
        name, content = "standard input", sys.stdin.buffer.read()
    else:
        name, content = str(path), existing_file(path, "--completions").read_bytes()
    rows = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        where = f"--completions: {name}:{number}"
        try:
            row = strict_json.loads(line, repair=True)
        except ValueError as error:
            raise ConfigError(f"{where}: {strict_json.line_fault(line, error)}") from error
        try:
            problem_id, completion = row["problem_id"], row["completion"]
        except (KeyError, TypeError) as error:
            got = ", ".join(row) if isinstance(row, dict) else "no object"
            raise ConfigError(
                f'{where}: expected an object with "problem_id" and "completion", got {got}'
            ) from error
        if not isinstance(problem_id, str) or problem_id not in known:
            like = next(iter(known), None)
            raise ConfigError(
                f"{where}: problem_id: {problem_id!r:.80} is not in {source}, whose first is {like!r:.80}"
            )
        if not isinstance(completion, str):
            raise ConfigError(f"{where}: completion: not text")
        rows.append((known[problem_id], completion))
    if not rows:
        raise ConfigError(f"--completions: {name} is empty")
    return rows


def _check_problems(problems: Mapping[str, Problem], source: str) -> None:
    """Check that the problems can be graded.

    Raises:
        ConfigError: a problem has no hidden tests, an unknown comparison or instruction, or an invalid
            Harbor task.
    """
    for problem in problems.values():
        try:
            if problem.task is not None:
                from coding_model_project.harbor.format.task import load_task

                load_task(Path(problem.task))
            KINDS[problem.graded_by].check(problem)
        except UngradableError as error:
            raise ConfigError(f"{source}: {problem.id}: {error}") from error


# ── output ────────────────────────────────────────────────────────────────────────────────────────


def _check_place(path: Path) -> None:
    """Raise `ConfigError` if no file can be written to this path."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise ConfigError(f"--out: {path}: {error.strerror or error}") from error
    if path.is_dir():
        raise ConfigError(f"--out: {path} is a folder; expected a file")


def _row(problem: Problem, outcome: Outcome) -> dict[str, Any]:
    if not isinstance(outcome, Verdict):
        why = {"type": type(outcome).__name__, "message": str(outcome)}
        return {"problem_id": problem.id, "ungradable": why, "judge_s": outcome.judge_s}
    row = asdict(outcome)
    row |= {"passed": outcome.passed, "pass_fraction": outcome.pass_fraction}
    row["error"] = outcome.error
    return row


def _say(outcomes: Sequence[Outcome], out: Path | None, *, as_json: bool) -> None:
    """Print the counts and shares of judged and accepted completions, and the reasons for the others."""
    verdicts = [outcome for outcome in outcomes if isinstance(outcome, Verdict)]
    errors = Counter(str(verdict.error) for verdict in verdicts if verdict.error is not None)
    reasons = Counter(
        f"{type(outcome).__name__}: {' '.join(str(outcome).split())}"
        for outcome in outcomes
        if not isinstance(outcome, Verdict)
    )
    accepted = len(verdicts) - errors.total()
    if as_json:
        counts = {"judged": len(verdicts), "accepted": accepted, "ungradable": reasons.total()}
        print(json.dumps({**counts, "errors": errors, "reasons": reasons}))
        return
    file = sys.stderr if out == STANDARD else sys.stdout
    where = "" if out is None or out == STANDARD else f"; verdicts in {out}"
    print(
        f"{len(verdicts)} judged, {accepted / max(1, len(verdicts)):.1%} accepted, "
        f"{reasons.total()} ungradable{where}",
        file=file,
    )
    if errors:
        shares = (f"{name} {n} ({n / len(verdicts):.1%})" for name, n in errors.most_common())
        print(f"not accepted: {', '.join(shares)}", file=file)
    for reason, n in reasons.most_common(N_REASONS):
        print(f"ungradable: {n} × {reason}", file=file)
    if len(reasons) > N_REASONS:
        print(f"ungradable: and {len(reasons) - N_REASONS} more reasons", file=file)
