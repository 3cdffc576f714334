"""Verdicts by content: duplicates within a group, and across steps, are judged once."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import replace

from coding_model_project.extract import extract
from coding_model_project.graders.execution import ExecutionGrader
from coding_model_project.types import Problem, Verdict


class CachedGrader:
    """Answers a program it has judged before from memory; duplicates in flight share one run.

    The key is the code, the problem's tests and limits, and the grader's identity (version, sandbox
    and tier, mode). Failures are never cached: all who wait for one get it, the next caller tries anew.

    Args:
        max_entries: verdicts kept, least recently used dropped first.
    """

    def __init__(self, inner: ExecutionGrader, *, bare: bool, max_entries: int = 50_000) -> None:
        self._inner = inner
        self._bare = bare
        self._max_entries = max_entries
        self._entries: OrderedDict[bytes, asyncio.Future[Verdict]] = OrderedDict()
        self._tests: dict[str, bytes] = {}

    async def grade(self, problem: Problem, completion: str) -> Verdict:
        """See `graders.base.Grader`. A cached verdict has `cached` set and no judge time."""
        key = self._key(problem, completion)
        known = self._entries.get(key)
        if known is not None:
            self._entries.move_to_end(key)
            return replace(await asyncio.shield(known), cached=True, judge_s=0.0)
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve)
        self._entries[key] = future
        try:
            verdict = await self._inner.grade(problem, completion)
        except BaseException as error:
            del self._entries[key]
            if isinstance(error, Exception):
                future.set_exception(error)
            else:  # cancelled: whoever waits with us must not wait for ever
                future.cancel()
            raise
        future.set_result(verdict)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return verdict

    def _key(self, problem: Problem, completion: str) -> bytes:
        code = extract(completion, language=problem.language, bare=self._bare).code
        digest = hashlib.sha256(self._inner.identity.encode())
        digest.update(self._tests_digest(problem))
        digest.update(b"\0none" if code is None else code.encode("utf-8", "surrogatepass"))
        return digest.digest()

    def _tests_digest(self, problem: Problem) -> bytes:
        if problem.id not in self._tests:
            content = (problem.id, problem.tests, problem.limits, problem.comparison, problem.language)
            self._tests[problem.id] = hashlib.sha256(repr(content).encode()).digest()
        return self._tests[problem.id]


def _retrieve(future: asyncio.Future[Verdict]) -> None:
    """Mark a failure as seen: the first caller raises it, and often nobody else waits."""
    if not future.cancelled():
        future.exception()
