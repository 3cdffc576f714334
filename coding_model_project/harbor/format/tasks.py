"""A reader of many tasks; it sets invalid ones aside with a reason, and continues with the rest.

Supported layouts:

    ROOT/TASK/                      a data set, as Harbor downloads it by default
    ROOT/SHORTUUID/TASK/            Harbor's cache, ~/.cache/harbor/tasks
    ROOT/packages/ORG/TASK/DIGEST/  the same, of published packages
    FILE.parquet                    packed tasks, which are unpacked beside it. Each row has `path` and
                                    `task_binary`, a tar file of the folder, usually with gzip
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coding_model_project.contained import file_name
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.harbor.environment.tree import from_tar, keep
from coding_model_project.harbor.failures import InvalidTask
from coding_model_project.harbor.format.task import (
    CONFIG_FILE,
    INSTRUCTION_FILE,
    Task,
    check_env,
    load_task,
)

_DEEPEST = 4
"""Maximum folders between a root and a task, as for a published package in Harbor's cache."""

_PARTS = ("environment", "solution", "steps", "tests")
"""Folders of a task, which contain no other task."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A folder that is not a valid task."""

    path: Path
    reason: str
    label: str
    """Its name, with as many parent folders as are needed to make it unique."""

    def line(self) -> dict[str, Any]:
        """Return the object that `harbor grade` prints, with the keys of `TrialOutcome.line`."""
        reason = " ".join(self.reason.split())
        missing = dict.fromkeys(("rewards", "failure_cause", "integrity"))
        about = {"task": self.label, "reward_valid": False, "exception": "InvalidTask"}
        return {**about, **missing, "reason": reason}


def _task_folders(
    paths: Iterable[Path], source: str | None, say: Callable[[str], None] | None
) -> list[tuple[Path, str]]:
    """Return the folders of tasks, with the names of their data sets. See `read_tasks`."""
    found: list[tuple[Path, str]] = []
    for given in paths:
        path, name = given, source
        if given.is_file():
            path, name = unpacked(given, say), source or given.name.split(".")[0]
        if not path.is_dir():
            raise ConfigError(f"{path}: no such folder of Harbor tasks")
        root = path.resolve()
        if _is_task(path):
            found.append((path, name or root.parent.name))
            continue
        inner = _subfolders(path)
        if not inner:
            raise ConfigError(f"{path}: neither a Harbor task nor a folder of them")
        below = {one: _tasks_below(one, _DEEPEST - 1) for one in inner}
        results = [one for one, tasks in below.items() if not tasks and _holds_results(one)]
        if results == inner or _is_result(path):
            raise ConfigError(
                f"{path}: holds results of jobs and no Harbor task; `harbor view` shows them"
            )
        for one in results:
            del below[one]
            if say is not None:
                say(f"ignored {one}: it holds results of jobs and no task")
        inside = [task for one, tasks in below.items() for task in tasks or [one]]
        found += [
            (one, name or root.name)
            for one in sorted(inside, key=lambda one: (_name_parts(one)[-1], str(one)))
        ]
    return found


def _holds_results(path: Path) -> bool:
    """Return whether a folder without tasks is a job's or a trial's, or contains one."""
    found = (one for depth in ("", "*/", "*/*/") for one in path.glob(f"{depth}result.json"))
    return any(_is_result(one.parent) for one in found)


def _is_result(path: Path) -> bool:
    names = ("config.json", "result.json")
    return not _is_task(path) and all((path / name).is_file() for name in names)


def _is_task(path: Path) -> bool:
    return (path / CONFIG_FILE).exists() or (path / INSTRUCTION_FILE).exists()


def _subfolders(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.name[0] not in "._" and one.is_dir())


def _tasks_below(path: Path, depth: int) -> list[Path]:
    """Return the tasks at or below a folder."""
    if _is_task(path):
        return [path]
    if depth == 0 or _is_result(path):
        return []
    inner = [one for one in _subfolders(path) if one.name not in _PARTS]
    return [task for one in inner for task in _tasks_below(one, depth - 1)]


def _name_parts(path: Path) -> tuple[str, ...]:
    """Return the folders that name a task, without the digest that ends a package's path."""
    parts = path.resolve().parts[1:]
    return parts[:-1] if len(parts) > 1 and _DIGEST.fullmatch(parts[-1]) else parts


def _labels(paths: Sequence[Path]) -> list[str]:
    """Return a unique name for each path, with more of the path if shorter names collide."""
    names, labels = [_name_parts(path) for path in paths], [""] * len(paths)
    left = set(range(len(paths)))
    for n in range(1, 3):
        short = {number: "/".join(names[number][-n:]) for number in left}
        often = Counter(short.values())
        for number in list(left):
            if often[short[number]] == 1:
                labels[number] = short[number]
                left.remove(number)
    for number in left:
        labels[number] = str(paths[number])
    return labels


def read_tasks(
    paths: Iterable[Path],
    environ: Mapping[str, str] | None = None,
    *,
    oracle: bool = False,
    verifier_env: Mapping[str, str] | None = None,
    source: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[Task | Refused]:
    """Find tasks, each path itself or those below it by name; then yield them, reading each lazily.

    A folder without any task counts as a broken task. Skips folders whose names begin with "." or "_",
    and folders that hold jobs or trials.

    Args:
        environ: the variables of this machine that tasks may have (`passed_variables`); a task that
            needs another one is refused. None passes none, and skips this check.
        oracle: whether the solutions will run, so that their variables are checked too.
        verifier_env: see `check_env`.
        source: the data set's name; default: the name of the folder that contains it.
        say: gets a line for each folder of jobs or trials, and each row that is no task.

    Raises:
        ConfigError: a path is neither a folder nor a file of tasks, or a folder that is empty or holds
            results only.
    """
    folders = _task_folders(paths, source, say)
    labels = _labels([path for path, _ in folders])

    def read(folder: tuple[Path, str], label: str) -> Task | Refused:
        path, name = folder
        try:
            task = replace(load_task(path), environ=environ or {})
            if environ is not None:
                check_env(task, oracle=oracle, verifier_env=verifier_env)
        except InvalidTask as error:
            return Refused(path=path, reason=str(error), label=label)
        return replace(task, label=label, source=name)

    return map(read, folders, labels)


COLUMNS = ("path", "task_binary")
_MAX_TASK_BYTES = 512 << 20
"""Maximum size of an unpacked task."""

_GZIP_MAGIC, _GZIP = b"\x1f\x8b", 31
"""A gzip file's first bytes (RFC 1952), and zlib's `wbits` for one."""


def unpacked(file: Path, say: Callable[[str], None] | None = None) -> Path:
    """Return the folder beside a Parquet file with its tasks, unpacked on first use.

    Args:
        say: gets a line for each row that is no task's folder; such a row leaves an empty folder.

    Raises:
        ConfigError: it is not such a file, or the folder cannot be written.
    """
    # Imported here, since only such files need what reads all data sets.
    from coding_model_project.data.files import file_hash
    from coding_model_project.data.loaders.files import read_rows

    target = file.with_name(f"{file.name}.{file_hash(file)[:12]}")
    if target.is_dir():
        return target
    try:
        with TemporaryDirectory(
            prefix=f".{file.name}.", dir=file.parent, ignore_cleanup_errors=True
        ) as made:
            partial = Path(made)
            for where, row in read_rows(file, COLUMNS):
                if not isinstance(row, dict) or not row.keys() >= set(COLUMNS):
                    raise DataError(f"{where}: expected the columns {' and '.join(COLUMNS)}")
                _unpack(partial, str(row["path"]), row["task_binary"], where, say)
            partial.chmod(0o755)
            partial.rename(target)
    except (DataError, OSError) as error:
        if not target.is_dir():  # another process may have been first
            raise ConfigError(
                f"{file}: expected a Parquet file of Harbor tasks, to unpack beside it: {error}"
            ) from error
    return target


def _unpack(
    folder: Path, path: str, packed: object, where: str, say: Callable[[str], None] | None
) -> None:
    task = folder / (file_name(path).lstrip("._") or "task")
    if task.exists():
        raise DataError(f"{where}: {path!r} is the name of an earlier task, too")
    task.mkdir()
    try:
        if not isinstance(packed, bytes):
            raise DataError("task_binary is not binary")
        tree = from_tar(_plain(packed), _MAX_TASK_BYTES)
        if tree.safe() != tree:
            raise DataError("a link leads out of the task")
    except (DataError, OSError, zlib.error) as error:
        if say is not None:
            say(f"{where}: {path!r} is no task: {error}")
        return
    keep(task, tree)


def _plain(packed: bytes) -> bytes:
    """Return a tar file without its compression.

    Raises:
        DataError, zlib.error: it is damaged or too large.
    """
    if packed[:2] != _GZIP_MAGIC:
        return packed
    unzip = zlib.decompressobj(_GZIP)
    plain = unzip.decompress(packed, _MAX_TASK_BYTES)
    if not unzip.eof:
        raise DataError(f"it is cut off, or unpacks to more than {_MAX_TASK_BYTES:,} bytes")
    return plain
