"""Checks that problems' tests reach the program, before rows are made of them.

A program that does nothing must fail, and the first gold solution must pass. Results are kept by content
in the cache folder, so that a problem is judged once on a machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from coding_model_project.concurrency import each
from coding_model_project.data.quality.preflight import (
    AT_ONCE,
    GOLD_REJECTED,
    UNREACHED,
    Fault,
    Preflight,
    faults,
    open_checker,
    result_key,
)
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.storage.fetching import cache_dir
from coding_model_project.types import Problem


async def unreached(
    ids: Sequence[str],
    problems: Mapping[str, Problem],
    sandbox: Sandbox,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Fault]:
    """Return the faults of programming problems, by id; other problems are not judged.

    Args:
        sandbox: a started sandbox.
        progress: a function called once per problem.

    Raises:
        UngradableError: the sandbox failed; the results so far are kept.
    """
    known = _read(_path())
    async with open_checker(sandbox) as checker:

        async def fault(name: str) -> Fault | None:
            problem = _first_gold(problems[name])
            key = _key(problem, sandbox.identity) if _is_judged(problem) else ""
            if key and key not in known:
                known[key] = _keep(key, await checker.check(problem, *faults([problem])))
            progress()
            return known.get(key)

        found = await each(ids, fault, at_once=AT_ONCE)
    return {name: one for name, one in zip(ids, found, strict=True) if one is not None}


def remember(problem: Problem, result: Preflight, sandbox: str) -> None:
    """Keep a preflight's result, so that the problem need not be judged again for rows."""
    # Of several gold solutions another one than the first may be the rejected one.
    is_sure = len(problem.gold) < 2 or not any(GOLD_REJECTED in why for _, why in result.reasons)
    if is_sure and _is_judged(problem):
        _keep(_key(_first_gold(problem), sandbox), result)


def _is_judged(problem: Problem) -> bool:
    return problem.asks_for_code and problem.task is None


def _first_gold(problem: Problem) -> Problem:
    return replace(problem, gold=problem.gold[:1], bad=())


def _key(problem: Problem, sandbox: str) -> str:
    return result_key(problem, (), f"{GRADER_VERSION} {sandbox}")


def _keep(key: str, result: Preflight) -> Fault | None:
    """Store and return the first reason that concerns gold solutions or idle programs."""
    kinds = (reason.partition(": ") for _, reason in result.reasons)
    faults = ((kind, why) for kind, _, why in kinds if kind in _KINDS)
    fault = next(faults, None)
    with suppress(OSError):  # a read-only home costs only time
        _path().parent.mkdir(parents=True, exist_ok=True)
        with _path().open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, fault]) + "\n")
    return fault


_KINDS = (UNREACHED, GOLD_REJECTED, "unusable")


def _path() -> Path:
    return cache_dir() / "reach.jsonl"


def _read(path: Path) -> dict[str, Fault | None]:
    known: dict[str, Fault | None] = {}
    with suppress(OSError):
        for line in path.read_text("utf-8", "replace").splitlines():
            # A line may be the end of a command that was killed.
            with suppress(ValueError, TypeError, IndexError):
                key, fault = json.loads(line)
                known[key] = fault and (str(fault[0]), str(fault[1]))
    return known
