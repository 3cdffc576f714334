"""Caches of verdicts by content, so that duplicates are judged once, and of values by problem."""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from sys import getsizeof
from typing import Any, Generic, TypeVar

from coding_model_project import codec
from coding_model_project.grading.base import CodeGrader
from coding_model_project.grading.extract import extract_for
from coding_model_project.grading.readings import RULES
from coding_model_project.types import UNJUDGED, Problem, Verdict


@dataclass(slots=True)
class _Entry:
    """A verdict, finished or pending, and the number of callers that wait for it."""

    verdict: asyncio.Task[Verdict]
    waiting: int = 0
    n_bytes: int = 0


class CachedGrader:
    """A grader that caches verdicts; concurrent duplicates share one run.

    The key is the code, the problem (tests, limits, comparison) and the grader's identity (version,
    sandbox and tier, mode). Failures are never cached: all callers that wait for one get it, and the next
    caller retries. A run without waiting callers is cancelled.

    Args:
        bare: treat completions as programs without a fence (`prompts.PromptStyle.bare`).
        max_bytes: the maximum memory of cached verdicts, which hold programs and details; the least
            recently used is dropped first.
    """

    def __init__(self, inner: CodeGrader, *, bare: bool, max_bytes: int = 128 << 20) -> None:
        self._inner = inner
        self._bare = bare
        self._max_bytes, self._n_bytes = max_bytes, 0
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._problem_digest = PerProblem(problem_digest)
        self.hits = 0
        """Number of completions answered from memory or by a run in progress."""
        self.misses = 0

    @property
    def identity(self) -> str:
        """See `grading.base.CodeGrader`."""
        return self._inner.identity

    def answered_from_memory(self) -> None:
        """See `grading.base.CodeGrader`."""
        self._inner.answered_from_memory()

    async def grade(self, problem: Problem, completion: str) -> Verdict:
        """See `grading.base.Grader`. A cached verdict has `cached` set and no judge time."""
        found = extract_for(problem, completion, bare=self._bare)
        verdict = await self.grade_code(problem, found.code, extraction=found.label)
        rule = RULES.get(problem.publisher or "")
        if verdict.publisher_passed is None or rule is None:
            return verdict
        theirs, why = found.code, "by the last fence"
        if self._bare:
            theirs, why = completion, "by the text around the program"
        elif rule.program is not None:
            theirs = rule.program(completion)
        if (theirs or "").strip("\n") == (found.code or "").strip("\n"):
            return verdict
        other = await self.grade_code(problem, theirs, extraction="publisher")
        passed = other.publisher_passed
        return replace(
            verdict,
            publisher_passed=passed,
            publisher_differs="" if passed is verdict.passed else why,
            judge_s=verdict.judge_s + other.judge_s,
        )

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """See `grading.base.CodeGrader`. Uses a cached verdict if there is one."""
        key = self._key(problem, code)
        entry = self._entries.get(key)
        hit = entry is not None
        if entry is None:
            grading = self._inner.grade_code(problem, code, extraction=extraction)
            entry = self._entries[key] = _Entry(asyncio.ensure_future(grading))
            entry.verdict.add_done_callback(lambda task: self._keep(key, task))
        self.hits += hit
        self.misses += not hit
        self._entries.move_to_end(key)
        verdict = await self._wait(key, entry)
        if not hit:
            return verdict
        self._inner.answered_from_memory()
        return replace(verdict, extraction=extraction, cached=True, judge_s=0.0)

    async def _wait(self, key: bytes, entry: _Entry) -> Verdict:
        entry.waiting += 1
        try:
            return await asyncio.shield(entry.verdict)
        finally:
            entry.waiting -= 1
            if not entry.waiting and not entry.verdict.done():
                entry.verdict.cancel()
                self._remove(key, entry.verdict)

    def _keep(self, key: bytes, task: asyncio.Task[Verdict]) -> None:
        """Keep a verdict, and drop the oldest ones beyond the memory limit; forget a failure."""
        if task.cancelled() or task.exception() is not None:
            self._remove(key, task)
            return
        if (entry := self._entries.get(key)) is None or entry.verdict is not task:
            return
        entry.n_bytes = _size(task.result())
        self._n_bytes += entry.n_bytes
        while self._n_bytes > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._n_bytes -= oldest.n_bytes

    def _remove(self, key: bytes, task: asyncio.Task[Verdict]) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.verdict is task:
            del self._entries[key]

    def _key(self, problem: Problem, code: str | None) -> bytes:
        digest = hashlib.sha256(self._inner.identity.encode())
        digest.update(self._problem_digest(problem))
        digest.update(b"none" if code is None else b"code" + code.encode("utf-8", "surrogatepass"))
        return digest.digest()


def _size(verdict: Verdict) -> int:
    """Return the approximate memory of a verdict, its task and its key, in bytes."""
    details = sum(getsizeof(result) + getsizeof(result.detail) for result in verdict.results)
    return 2_000 + getsizeof(verdict.code) + details


def problem_digest(problem: Problem) -> bytes:
    """Return a digest of everything of a problem but `types.UNJUDGED`."""
    names = (field.name for field in fields(problem) if field.name not in UNJUDGED)
    content = [(name, _plain(getattr(problem, name))) for name in names]
    return hashlib.sha256(codec.dumps(content)).digest()


def _plain(value: Any) -> Any:
    """Return a value in which dataclasses are tuples of their type and fields."""
    if is_dataclass(value):
        parts = (_plain(getattr(value, field.name)) for field in fields(value))
        return type(value).__name__, *parts
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return dict(value) if isinstance(value, Mapping) else value


Value = TypeVar("Value")


class PerProblem(Generic[Value]):
    """A function of a problem that remembers its results for as long as the problem is in use.

    Problems may be read anew for every sample (`data.problems.ProblemFile`), and must not pile up here.
    """

    def __init__(self, compute: Callable[[Problem], Value]) -> None:
        self._compute = compute
        self._known: dict[int, tuple[weakref.ref[Problem], Value]] = {}

    def __call__(self, problem: Problem) -> Value:
        """Return the value for this very object."""
        key, known = id(problem), self._known
        if key not in known:
            forget = weakref.ref(problem, lambda _: known.pop(key, None))
            known[key] = forget, self._compute(problem)
        return known[key][1]
