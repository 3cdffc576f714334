"""Results of a command, stored by content, so that the same command resumes after any interruption."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_model_project.errors import ConfigError, StorageError
from coding_model_project.evaluation.journal import Journal
from coding_model_project.grading.base import Grader
from coding_model_project.grading.cache import problem_digest
from coding_model_project.grading.verdict_rows import plain_verdict, verdict_of
from coding_model_project.runs.folder import full_disk
from coding_model_project.types import Problem, Verdict


@dataclass(frozen=True, slots=True)
class Kept:
    """A line of a journal."""

    key: str
    """Digest of everything that the result depends on."""
    result: dict[str, Any]


class KeptResults:
    """A journal of results, including those of earlier attempts."""

    def __init__(self, journal: Journal[Kept] | None) -> None:
        self._journal = journal
        self.known: Mapping[str, dict[str, Any]] = (
            {row.key: row.result for row in journal.rows()} if journal else {}
        )

    def keep(self, key: str, result: dict[str, Any]) -> None:
        """Append a result.

        Raises:
            StorageError: the journal cannot be written.
        """
        if self._journal is not None:
            self._journal.append(Kept(key, result))


@contextmanager
def kept_results(path: Path | None) -> Iterator[KeptResults]:
    """Open a journal exclusively for this process; without a path, store nothing.

    Raises:
        ConfigError: another command is writing to it.
        DataError: a line is damaged.
        StorageError: the journal cannot be written.
    """
    if path is None:
        yield KeptResults(None)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("ab")
    except OSError as error:
        raise StorageError(
            f"--journal={path}: cannot be written ({error.strerror}){full_disk(path.parent)}"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"--journal={path}: another command is writing to it; wait for it, or pass another file"
            ) from error
        with Journal(path, Kept) as journal:
            yield KeptResults(journal)


class KeptGrader:
    """A `grading.base.Grader` that stores verdicts and never grades a completion twice.

    Verdicts of Harbor tasks are not stored, because their folders may change.

    Args:
        settings: everything that a verdict depends on besides problem and completion.
    """

    def __init__(self, inner: Grader, kept: KeptResults, settings: str) -> None:
        self._inner, self._kept = inner, kept
        self._settings = settings.encode()

    async def grade(self, problem: Problem, completion: str) -> Verdict:
        """See `grading.base.Grader`."""
        key = self._key(problem, completion)
        if (known := self._kept.known.get(key)) is not None:
            return verdict_of(known)
        verdict = await self._inner.grade(problem, completion)
        if problem.task is None:
            self._kept.keep(key, plain_verdict(verdict))
        return verdict

    def _key(self, problem: Problem, completion: str) -> str:
        digest = hashlib.sha256(self._settings)
        digest.update(problem_digest(problem))
        digest.update(completion.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()
