"""A preflight in chunks with stored results, so that it can resume and nodes can share the work."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coding_model_project.concurrency import each
from coding_model_project.data.quality.faults import Fault, faults
from coding_model_project.data.quality.preflight import Mutation, Preflight
from coding_model_project.data.quality.rates import NONE, Rate
from coding_model_project.errors import SandboxError
from coding_model_project.grading.cache import problem_digest
from coding_model_project.types import Problem

CHUNK = 200
"""Maximum number of problems per chunk."""

_CHUNKS = 10
"""Number of chunks of a small set, so that several nodes can share it."""

_MOST_FAILURES = 3
"""Number of failed chunks after which the others are skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Problems that are checked together, with their faults within the whole set."""

    key: str
    """A digest of the problems, the settings and the judge."""
    problems: Sequence[Problem]
    found: Sequence[Sequence[Fault]]


Check = Callable[[Chunk], Awaitable[Preflight]]
"""A function that checks a chunk; raises SandboxError if it cannot."""


def chunks(problems: Sequence[Problem], settings: str) -> Iterator[Chunk]:
    """Split a set into chunks, deterministically.

    Args:
        settings: all inputs of a result other than the problems.
    """
    found = faults(problems)
    size = min(CHUNK, max(1, -(-len(problems) // _CHUNKS)))
    for start in range(0, len(problems), size):
        part = problems[start : start + size]
        wrong = found[start : start + size]
        digest = hashlib.sha256(f"{settings}{wrong}".encode("utf-8", "surrogatepass"))
        for problem in part:
            own = repr((problem.statement, problem.gold, problem.bad))
            digest.update(problem_digest(problem) + own.encode("utf-8", "surrogatepass"))
        yield Chunk(key=digest.hexdigest(), problems=part, found=wrong)


async def check_chunks(
    cut: Sequence[Chunk],
    check: Check,
    *,
    known: Mapping[str, Preflight],
    keep: Callable[[str, Preflight], None],
    at_once: int,
) -> Preflight:
    """Check the chunks without a known result, and merge all results.

    Args:
        known: results by the chunk's key.
        keep: a function called with each new result at once.
        at_once: the maximum number of chunks in progress.

    Raises:
        SandboxError: some chunks could not be checked; the others were, and their results are kept.
    """
    failures: list[SandboxError] = []

    async def one(chunk: Chunk) -> Preflight | None:
        if chunk.key in known:
            return known[chunk.key]
        if len(failures) >= _MOST_FAILURES:
            return None
        try:
            result = await check(chunk)
        except SandboxError as error:
            failures.append(error)
            return None
        if not any(problem.task for problem in chunk.problems):  # a folder, which may change
            keep(chunk.key, result)
        return result

    results = await each(cut, one, at_once=at_once)
    done = [result for result in results if result is not None]
    if failures:
        raise SandboxError(
            f"{len(cut) - len(done)} of {len(cut)} chunks could not be checked ({failures[0]}); to check "
            "only those, repeat the command with --journal FILE"
        )
    return merged(done)


def merged(parts: Sequence[Preflight]) -> Preflight:
    """Merge the results of a set's parts; `seconds` is the sum over all nodes."""
    named: Counter[str] = Counter()
    reasons: dict[str, tuple[str, ...]] = {}
    for part in parts:
        named.update(part.faults)
        for name, why in part.quarantined:  # a duplicate id may be in two chunks
            reasons[name] = tuple(dict.fromkeys((*reasons.get(name, ()), *why)))
    return Preflight(
        problems=sum(part.problems for part in parts),
        gold_accepted=sum(part.gold_accepted for part in parts),
        bad_total=sum(part.bad_total for part in parts),
        bad_rejected=sum(part.bad_rejected for part in parts),
        seconds=sum(part.seconds for part in parts),
        complaints=tuple(dict.fromkeys(one for part in parts for one in part.complaints)),
        without_gold=sum(part.without_gold for part in parts),
        gold=_sum(part.gold for part in parts),
        bad=_sum(part.bad for part in parts),
        mutation=Mutation(
            **{
                name: sum(getattr(part.mutation, name) for part in parts)
                for name in Mutation.__dataclass_fields__
            }
        ),
        flaky=tuple(one for part in parts for one in part.flaky),
        quarantined=tuple(reasons.items()),
        faults=dict(named),
        compared_with_itself=sum(part.compared_with_itself for part in parts),
    )


def _sum(rates: Iterator[Rate]) -> Rate:
    total = NONE
    for rate in rates:
        total = Rate(hits=total.hits + rate.hits, total=total.total + rate.total)
    return total


def as_row(result: Preflight) -> dict[str, Any]:
    """Return a result as plain data, for a journal."""
    return asdict(result) | {"faults": dict(result.faults)}


def of_row(row: Mapping[str, Any]) -> Preflight:
    """Return the result that `as_row` converted."""
    nested = {
        "gold": Rate(**row["gold"]),
        "bad": Rate(**row["bad"]),
        "mutation": Mutation(**row["mutation"]),
        "complaints": tuple(row["complaints"]),
        "flaky": tuple(row["flaky"]),
        "quarantined": tuple((name, tuple(why)) for name, why in row["quarantined"]),
    }
    return Preflight(**{**row, **nested})
