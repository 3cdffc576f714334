"""An index of a file of problems: the place of each line by its problem's id, in a file beside it.

The index FILE.index is an SQLite table. Any number of processes read it without locks, which also works
in read-only folders and network file systems. It fits the file with the size and the time of change that
it names; a copy of the file gets an index of its own at its first use.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from coding_model_project.storage.fetching import cache_dir

_TABLES = """
    CREATE TABLE lines (id BLOB PRIMARY KEY, start INTEGER, length INTEGER) WITHOUT ROWID;
    CREATE TABLE file (version INTEGER, size INTEGER, changed_ns INTEGER);
"""
_VERSION = 1


class ProblemIndex:
    """The places of a file's lines, by problem id."""

    def __init__(self) -> None:
        """Start an empty index in memory."""
        self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._db.executescript(_TABLES)

    @classmethod
    def of(cls, path: Path, file: BinaryIO) -> ProblemIndex | None:
        """Return the stored index of an open file, or None if there is none that fits."""
        for place in _places(path):
            index = cls.__new__(cls)
            with suppress(sqlite3.Error):
                address = f"file:{quote(str(place))}?mode=ro&immutable=1"
                index._db = sqlite3.connect(address, uri=True, check_same_thread=False)
                if index._db.execute("SELECT * FROM file").fetchall() == [_stamp(file)]:
                    return index
        return None

    def add(self, problem_id: str, start: int, length: int) -> bool:
        """Add a line, and return whether its id is new."""
        row = (_key(problem_id), start, length)
        return bool(self._db.execute("INSERT OR IGNORE INTO lines VALUES (?,?,?)", row).rowcount)

    def place(self, problem_id: str) -> tuple[int, int] | None:
        """Return the start and the length of a problem's line in bytes."""
        query = "SELECT start, length FROM lines WHERE id = ?"
        return self._db.execute(query, (_key(problem_id),)).fetchone()

    def ids(self) -> Iterator[str]:
        """Yield all ids in the file's order."""
        for (key,) in self._db.execute("SELECT id FROM lines ORDER BY start"):
            yield key.decode("utf-8", "surrogatepass")

    def __len__(self) -> int:
        return self._db.execute("SELECT count(*) FROM lines").fetchone()[0]

    def store(self, path: Path, file: BinaryIO) -> None:
        """Store a complete index beside its file, or in the cache if that folder is read-only.

        If neither can be written, the index stays in this process.
        """
        self._db.execute("INSERT INTO file VALUES (?,?,?)", _stamp(file))
        for place in _places(path):
            partial = place.with_name(f"{place.name}.{os.getpid()}.partial")
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(self._db.serialize())
                partial.replace(place)
                return
            except OSError:
                with suppress(OSError):
                    partial.unlink()


def _places(path: Path) -> tuple[Path, Path]:
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
    return path.with_name(f"{path.name}.index"), cache_dir() / "indices" / f"{name}.index"


def _stamp(file: BinaryIO) -> tuple[int, int, int]:
    """Return what tells whether an index fits a file."""
    state = os.fstat(file.fileno())
    return _VERSION, state.st_size, state.st_mtime_ns


def _key(problem_id: str) -> bytes:
    return problem_id.encode("utf-8", "surrogatepass")
