"""Problems as JSON lines: our own schema, into which all sources are converted.

    {"id": "tinycode/17", "split": "train", "statement": "…",
     "tests": [{"call": "solve", "args": […], "expected": …, "public": true},
               {"stdin": "1 2", "expected": "3"},
               {"asserts": "assert f(1) == 2", "entry_point": "f"}],
     "limits": {"cpu_s": 1.0, …}, "comparison": "tokens", "atol": 1e-6, "rtol": 1e-6,
     "isolation": "per_test",
     "entry_point": "solve", "language": "python",
     "checker": {"source": "…", "language": "python", "protocol": "testlib"},
     "difficulty": 2, "date": "2024-08-01", "tags": ["lists"], "gold": ["def solve…"], "bad": ["…"],
     "base_tests": 1, "prelude": "from typing import *", "publisher": "livecodebench",
     "messages": [{"role": "system", "content": "…"}, {"role": "user", "content": "…"}]}
    {"id": "tasks/17", "split": "train", "statement": "…", "grader": "harbor", "task": "tasks/17"}
    {"id": "sums/1", "split": "train", "statement": "…", "grader": "math", "answer": "42"}
    {"id": "rules/1", "split": "train", "statement": "…", "grader": "instructions",
     "instructions": [{"kind": "punctuation:no_comma", "arguments": {}}]}
    {"id": "calls/1", "split": "train", "statement": "…", "grader": "prediction",
     "prediction": {"of": "output", "program": "def f(x): …", "output": [1, 2]}}
    {"id": "functions/1", "split": "test", "statement": "…", "grader": "harness", "language": "python",
     "harness": {"before": "…", "after": "assert f(1) == 2\nprint(input())"}}

Only id, split, statement and the grader's field are required: tests; the folder of a Harbor task,
relative to the file; a final answer; instructions; a prediction; or a harness. Arguments and expected
values are plain JSON; values that JSON lacks (tuples, sets, keys other than text) use `codec`'s form.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote
from weakref import WeakValueDictionary

import orjson

from coding_model_project import strict_json
from coding_model_project.atomic import replacing
from coding_model_project.codec import to_json
from coding_model_project.data.problem_rows import problem_of
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.kinds import KINDS
from coding_model_project.row_readers import Malformed
from coding_model_project.storage.fetching import cache_dir
from coding_model_project.types import Asserts, Call, GradedBy, Problem, Stdin, Test

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
        for place in _index_places(path):
            index = cls.__new__(cls)
            with suppress(sqlite3.Error):
                address = f"file:{quote(str(place))}?mode=ro&immutable=1"
                index._db = sqlite3.connect(address, uri=True, check_same_thread=False)
                if index._db.execute("SELECT * FROM file").fetchall() == [_stamp(file)]:
                    return index
        return None

    def add(self, problem_id: str, start: int, length: int) -> bool:
        """Add a line, and return whether its id is new."""
        row = (_key_of(problem_id), start, length)
        return bool(self._db.execute("INSERT OR IGNORE INTO lines VALUES (?,?,?)", row).rowcount)

    def place(self, problem_id: str) -> tuple[int, int] | None:
        """Return the start and the length of a problem's line in bytes."""
        query = "SELECT start, length FROM lines WHERE id = ?"
        return self._db.execute(query, (_key_of(problem_id),)).fetchone()

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
        for place in _index_places(path):
            partial = place.with_name(f"{place.name}.{os.getpid()}.partial")
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                partial.write_bytes(self._db.serialize())
                partial.replace(place)
                return
            except OSError:
                with suppress(OSError):
                    partial.unlink()


def _index_places(path: Path) -> tuple[Path, Path]:
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
    return path.with_name(f"{path.name}.index"), cache_dir() / "indices" / f"{name}.index"


def _stamp(file: BinaryIO) -> tuple[int, int, int]:
    """Return what tells whether an index fits a file."""
    state = os.fstat(file.fileno())
    return _VERSION, state.st_size, state.st_mtime_ns


def _key_of(problem_id: str) -> bytes:
    return problem_id.encode("utf-8", "surrogatepass")


def write_problems(path: Path | str, problems: Iterable[Problem]) -> None:
    """Write problems atomically, one per line and each once, with the file's index.

    Raises:
        ConfigError: two different problems have the same id.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    index, start = ProblemIndex(), 0
    with replacing(path) as partial, partial.open("w+b") as file:
        for problem in problems:
            line = problem_line(problem)
            if index.add(problem.id, start, len(line)):
                start += file.write(line)
                continue
            file.flush()
            begin, length = index.place(problem.id) or (0, 0)
            if os.pread(file.fileno(), length, begin) != line:
                raise ConfigError(f"two different problems have the id {problem.id}")
        file.flush()
        index.store(path, file)


def plain_statement(problem: Problem) -> str:
    """Return a statement that is equal for problems which differ only in spaces and line ends."""
    return " ".join(problem.statement.split())


def problem_line(problem: Problem) -> bytes:
    """Return the line of a file for a problem."""
    return orjson.dumps(_problem_to_json(problem)) + b"\n"


def read_problems(path: Path | str) -> tuple[Problem, ...]:
    """Read all problems of a file.

    Raises:
        DataError: the file is missing, a line is malformed or an id occurs twice; names file, line
            and field.
    """
    path = Path(path)
    with _opened(path) as file:
        return tuple(_read(path, file, ProblemIndex()))


class ProblemFile(Mapping[str, Problem]):
    """The problems of a file by id, each read when it is needed; a process holds only those in use.

    The first use of a file without an index reads all of it, and stores the index.
    """

    def __init__(self, path: Path | str) -> None:
        """Open a file.

        Raises:
            DataError: see `read_problems`; lines are checked when the index is made.
        """
        self._path = Path(path)
        self._file = _opened(self._path)
        index = ProblemIndex.of(self._path, self._file)
        if index is None:
            index = ProblemIndex()
            for _ in _read(self._path, self._file, index):
                pass
            index.store(self._path, self._file)
        self._index = index
        self._in_use: WeakValueDictionary[str, Problem] = WeakValueDictionary()

    def __getitem__(self, problem_id: str) -> Problem:
        """Return a problem, the same object for as long as it is in use.

        Raises:
            KeyError: the file has no such problem.
            DataError: the file was changed in place.
        """
        problem = self._in_use.get(problem_id)
        if problem is None:
            if (place := self._index.place(problem_id)) is None:
                raise KeyError(problem_id)
            start, length = place
            where = f"{self._path}: {problem_id}"
            problem = _parse(os.pread(self._file.fileno(), length, start), where, self._path)
            if problem.id != problem_id:
                raise DataError(f"{where}: the file has changed since it was opened")
            self._in_use[problem_id] = problem
        return problem

    def __iter__(self) -> Iterator[str]:
        return self._index.ids()

    def __len__(self) -> int:
        return len(self._index)


def _opened(path: Path) -> BinaryIO:
    if not path.exists():
        raise DataError(f"{path}: no such file of problems")
    return path.open("rb")


def _read(path: Path, file: BinaryIO, index: ProblemIndex) -> Iterator[Problem]:
    """Yield the problems of an open file, and add the places of their lines to `index`."""
    start = 0
    for number, line in enumerate(file, 1):
        if line.strip():
            problem = _parse(line, f"{path}:{number}", path)
            if not index.add(problem.id, start, len(line)):
                raise DataError(f"{path}:{number}: id {problem.id!r} occurs twice")
            yield problem
        start += len(line)


def from_file(problem: Problem, path: Path) -> Problem:
    """Return a problem with the absolute path of its Harbor task."""
    if problem.task is None:
        return problem
    return replace(problem, task=str(path.parent.resolve() / problem.task))


def _parse(line: bytes, where: str, path: Path) -> Problem:
    try:
        row = strict_json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: {strict_json.line_fault(line, error)}") from error
    return from_file(problem_from_json(row, where), path)


def problem_from_json(row: Any, where: str) -> Problem:
    """Convert a decoded row into a problem.

    Raises:
        DataError: it is malformed; names `where` and the field.
    """
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object")
    try:
        return problem_of(row)
    except Malformed as error:
        raise DataError(f"{where}: {error}") from error


_DEFAULTS = {one.name: one.default for one in fields(Problem)}
_ALWAYS = {
    "id", "split", "statement", "tests", "limits", "comparison", "entry_point", "language",
    "difficulty", "tags", "gold", "bad",
}  # fmt: skip
"""Fields that every line has. Others are written if they differ from their default, so that a new field
leaves the lines of other problems, and the versions of their sets, as they are."""
_JUDGED_BY = {kind.field for kind in GradedBy}


def _problem_to_json(problem: Problem) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = getattr(problem, name)
        if name in _ALWAYS or (name not in _JUDGED_BY and value != default):
            row[name] = value
    row["tests"] = [test_to_json(test) for test in problem.tests]
    kind = problem.graded_by
    if kind is not GradedBy.tests:
        value = KINDS[kind].write(getattr(problem, kind.field))
        row |= {"grader": kind, kind.field: value}
    return row


def test_to_json(test: Test) -> dict[str, Any]:
    """Return a test as a row has it."""
    match test.input:
        case Stdin(text):
            row: dict[str, Any] = {"stdin": text}
        case Call():
            row = {"call": test.input.function, "args": [to_json(a) for a in test.input.args]}
        case Asserts():
            row = {"asserts": test.input.source, "entry_point": test.input.entry_point}
    row["expected"] = to_json(test.expected)
    if test.public:
        row["public"] = True
    return row
