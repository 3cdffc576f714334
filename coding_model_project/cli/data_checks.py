"""The `data` command that judges a set's tests: `preflight`."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from coding_model_project.atomic import write_lines
from coding_model_project.cli import options
from coding_model_project.cli.options import print_first, print_set_aside
from coding_model_project.config_key import option
from coding_model_project.data.problems import plain_statement, problem_line, write_problems
from coding_model_project.data.quality.preflight import (
    AT_ONCE,
    Fault,
    Preflight,
    check_all,
    open_checker,
    result_key,
)
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.harbor import task_grader
from coding_model_project.progress import Advance, progress_bar
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import Problem


async def preflight(
    name: str = option(..., options.DATASET),
    *,
    data: options.OneSet,
    mutants: int = option(0, options.MUTANTS),
    repeats: int = option(1, "Judge each program N times, to find unstable verdicts.", min=1),
    quarantine: Path | None = option(
        None, "Write problems unfit for training to this JSON Lines file, with reasons."
    ),
    passed: Path | None = option(
        None, "Write problems fit for training to this file, in our own schema."
    ),
    as_json: bool = option(False, options.AS_JSON),
    sandbox: options.Judging,
    where: options.Resumable,
) -> int:
    """Check that gold solutions are accepted and known-bad programs rejected.

    Also reports duplicate ids, empty statements, absurd limits and answers that were compared with
    themselves. The last line is JSON. Exit code 1 if a problem has a fault, a gold solution is rejected,
    a known-bad program is accepted, a verdict is unstable, or there are no solutions to check with.
    """
    name, loaded = data.load(name)
    problems = loaded.problems[: data.limit]
    if not problems:
        print_set_aside(loaded.notes, loaded.set_aside, len(loaded.problems))
        raise ConfigError(f"data preflight {name}: no usable problems ({loaded.origin})")
    started = time.monotonic()
    with progress_bar(name, len(problems)) as advance:
        result = await run_preflight(
            problems, sandbox, where, advance, mutants=mutants, repeats=repeats
        )
    seconds = time.monotonic() - started
    unfit = result.quarantined
    if quarantine is not None:
        lines = [
            {
                "id": one.id,
                "reasons": unfit[one.id],
                "problem": orjson.Fragment(problem_line(one).rstrip()),
            }
            for one in problems
            if one.id in unfit
        ]
        lines += [{"where": one.where, "reasons": [one.reason]} for one in loaded.set_aside]
        write_lines(quarantine, lines)
    if passed is not None:
        write_problems(passed, (problem for problem in problems if problem.id not in unfit))
    if not as_json:
        print_set_aside(loaded.notes, loaded.set_aside, len(loaded.problems))
        _say_copies(problems)
        _say_preflight(result)
    line: dict[str, Any] = {
        "dataset": name,
        "problems": result.problems,
        "gold_accepted": result.gold_accepted,
        "bad_total": result.bad.total,
        "bad_rejected": result.bad.hits,
        "seconds": round(seconds, 3),
    }
    more = {
        "set_aside": len(loaded.set_aside),
        "faults": Counter(result.faults),
        "compared_with_itself": result.compared_with_itself,
    }
    line |= {key: value for key, value in more.items() if value}
    if repeats > 1 or mutants > 0:
        line["mutants"] = asdict(result.mutation)
        line["true_positives"] = result.gold.as_json()
        line["true_negatives"] = result.bad.as_json()
        line["flaky"] = list(result.flaky)
        line["quarantined"] = len(result.quarantined)
    print(json.dumps(line))
    shown = bool(result.gold.total or result.bad.total)
    if not shown and result.compared_with_itself:
        options.warn(f"{name}: its answers come from its solutions: nothing is shown")
    elif not shown and result.complaints:
        options.warn(
            f"{name}: no solution could be judged: nothing is shown of its tests; the first fault: "
            f"{result.complaints[0]}"
        )
    elif not shown:
        options.warn(f"{name} ships no solutions: nothing is shown of its tests")
    return 0 if result.passed and shown else 1


def _say_copies(problems: Sequence[Problem]) -> None:
    """Print how many problems repeat a statement: a table with a row per test looks like this."""
    first: dict[str, str] = {}
    copies = [
        f"{one.id} and {named}"
        for one in problems
        if (named := first.setdefault(plain_statement(one), one.id)) != one.id
    ]
    if copies:
        print(
            f"{len(copies)} problems have the statement of an earlier one, such as {copies[0]}: if the "
            "file has a row per test, join their tests; else `data dedup` leaves them out"
        )


def _say_preflight(result: Preflight) -> None:
    if result.without_gold:
        print(f"{result.without_gold} problems have no gold solution")
    for fault, count in Counter(result.faults).items():
        print(f"{count} problems not judged: {fault}")
    if result.compared_with_itself:
        print(
            f"{result.compared_with_itself} maths problems not counted: their answer was compared with "
            "the end of their own solution, which shows nothing"
        )
    print(f"gold programs accepted: {result.gold}")
    print(f"known-bad programs rejected: {result.bad}")
    if result.mutation.problems:
        mutation = result.mutation
        print(
            f"of these mutants: {mutation.rejected}/{mutation.judged} rejected, of {mutation.problems} "
            f"problems ({mutation.with_two_operators} with two operators); {mutation.set_aside} set "
            "aside, which pass a plain run of the tests"
        )
    if result.flaky:
        print(f"flaky: {', '.join(result.flaky)}")
    print_first(result.complaints)


# ── judging with a journal ─────────────────────────────────────────────────────────────────────────


async def run_preflight(
    problems: Sequence[Problem],
    sandbox: SandboxConfig,
    where: options.Resumable,
    advance: Advance,
    *,
    mutants: int = 0,
    repeats: int = 1,
) -> Preflight:
    """Check problems (`data.quality.preflight`); results in the journal are not made again.

    Args:
        advance: called once per problem.

    Raises:
        SandboxError: some problems could not be checked; the journal has the results of the others.
        ClusterError: the cluster cannot be used.
    """
    from pydantic import TypeAdapter

    from coding_model_project.data.quality.reach import remember
    from coding_model_project.evaluation.journal import kept_results

    row_type = TypeAdapter(Preflight)
    with kept_results(where.journal) as kept:
        if kept.known:
            options.warn(f"resuming with {len(kept.known)} results")
        async with (
            where.sandbox(sandbox) as opened,
            open_checker(opened, task_grader) as checker,
        ):
            settings = f"{GRADER_VERSION} {opened.identity} {mutants} {repeats}"

            async def check(problem: Problem, found: Sequence[Fault]) -> Preflight:
                key = result_key(problem, found, settings)
                if (row := kept.known.get(key)) is not None:
                    return row_type.validate_python(row)
                result = await checker.check(
                    problem, found, mutants_per_problem=mutants, repeats=repeats
                )
                remember(problem, result, opened.identity)
                if not problem.task:  # a folder, which may change
                    kept.keep(key, asdict(result))
                return result

            at_once = sys.maxsize if where.cluster else AT_ONCE
            try:
                return await check_all(problems, check, at_once=at_once, progress=advance)
            except SandboxError as error:
                raise SandboxError(
                    f"{error}; to check only those, repeat the command with --journal FILE"
                ) from error
