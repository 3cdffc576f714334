"""Checks that problems' tests reach the program, before rows are made of them.

A program that does nothing must fail, and the first gold solution must pass. Results are kept by content
in the cache folder, so that a problem is judged once on a machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from coding_model_project.data.quality.faults import Fault
from coding_model_project.data.quality.preflight import (
    GOLD_REJECTED,
    UNREACHED,
    Preflight,
    preflight,
)
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.cache import problem_digest
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.storage.fetching import cache_dir
from coding_model_project.types import Problem

_CHUNK = 200
"""Number of problems in memory, whose results are kept at once."""


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
    faults: dict[str, Fault] = {}
    for start in range(0, len(ids), _CHUNK):
        chunk = [problems[name] for name in ids[start : start + _CHUNK]]
        asked = [_one_gold(one) for one in chunk if one.asks_for_code and one.task is None]
        keys = {one.id: _key(one, sandbox.identity) for one in asked}
        new = [one for one in asked if keys[one.id] not in known]
        if new:
            known |= _keep(new, await preflight(new, sandbox), sandbox.identity)
        faults |= {one.id: fault for one in asked if (fault := known[keys[one.id]]) is not None}
        for _ in chunk:
            progress()
    return faults


def remember(problems: Iterable[Problem], result: Preflight, sandbox: str) -> None:
    """Keep a preflight's results, so that these problems need not be judged again for rows."""
    rejected = {name for name, why in result.quarantined if any(map(_is_gold, why))}
    # Of several gold solutions another one than the first may be the rejected one.
    sure = [one for one in problems if len(one.gold) < 2 or one.id not in rejected]
    coded = [_one_gold(one) for one in sure if one.asks_for_code and one.task is None]
    _keep(coded, result, sandbox)


def _keep(problems: Sequence[Problem], result: Preflight, sandbox: str) -> dict[str, Fault | None]:
    reasons = dict(result.quarantined)
    found = {_key(one, sandbox): _fault(reasons.get(one.id, ())) for one in problems}
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps([key, fault]) + "\n" for key, fault in found.items()))
    except OSError:  # a read-only home costs only time
        pass
    return found


def _fault(reasons: Iterable[str]) -> Fault | None:
    """Return the first of a preflight's reasons that concerns gold solutions or idle programs."""
    for reason in reasons:
        kind, _, detail = reason.partition(": ")
        if kind in (UNREACHED, GOLD_REJECTED, "unusable"):
            return kind, detail
    return None


def _is_gold(reason: str) -> bool:
    return reason.startswith(GOLD_REJECTED)


def _one_gold(problem: Problem) -> Problem:
    return replace(problem, gold=problem.gold[:1], bad=())


def _key(problem: Problem, sandbox: str) -> str:
    digest = hashlib.sha256(f"{GRADER_VERSION} {sandbox} ".encode() + problem_digest(problem))
    digest.update(repr(problem.gold).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def _path() -> Path:
    return cache_dir() / "reach.jsonl"


def _read(path: Path) -> dict[str, Fault | None]:
    known: dict[str, Fault | None] = {}
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return known
    for line in lines:
        try:
            key, fault = json.loads(line)
            known[key] = None if fault is None else (str(fault[0]), str(fault[1]))
        except (ValueError, TypeError, IndexError):  # the end of a command that was killed
            continue
    return known
