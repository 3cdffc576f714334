"""Parquet files of task folders, as data sets for RL publish them: columns `path` and `task_binary`.

`task_binary` is a tar file of the task's folder, usually with gzip. Files come from strangers: no name
and no link leads out of its folder, and sizes are bounded.
"""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import mkdtemp

from coding_model_project.contained import file_name
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.harbor.environment.tar_files import from_tar, to_tar
from coding_model_project.harbor.environment.tree import keep, of_files
from coding_model_project.harbor.format.task import Task

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

    try:
        target = file.with_name(f"{file.name}.{file_hash(file)[:12]}")
        if target.is_dir():
            return target
        partial = Path(mkdtemp(prefix=f".{file.name}.", dir=file.parent))
    except OSError as error:
        raise ConfigError(f"{file}: its tasks cannot be unpacked beside it: {error}") from error
    try:
        for where, row in read_rows(file, COLUMNS):
            if not isinstance(row, dict) or not row.keys() >= set(COLUMNS):
                raise DataError(f"{where}: expected the columns {' and '.join(COLUMNS)}")
            _unpack(partial, str(row["path"]), row["task_binary"], where, say)
        partial.chmod(0o755)
        partial.rename(target)
    except (DataError, OSError) as error:
        if not target.is_dir():  # another process may have been first
            raise ConfigError(
                f"{file}: expected a Parquet file of Harbor tasks: {error}"
            ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
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


def pack(tasks: Iterable[Task], file: Path) -> int:
    """Write tasks to a new Parquet file, and return their number. The same tasks give the same rows.

    Raises:
        ConfigError: the file exists, or cannot be written.
    """
    import duckdb

    if file.exists():
        raise ConfigError(f"--out={file}: exists; pass a new file")
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("CREATE TABLE tasks (path VARCHAR, task_binary BLOB)")
        n_tasks = 0
        for task in tasks:
            paths = sorted(task.path.rglob("*"))
            tree = of_files((path.relative_to(task.path).as_posix(), path) for path in paths)
            packed = gzip.compress(to_tar(tree.safe()), mtime=0)
            connection.execute("INSERT INTO tasks VALUES (?, ?)", [task.label, packed])
            n_tasks += 1
        try:
            connection.table("tasks").write_parquet(os.fspath(file))
        except duckdb.Error as error:
            raise ConfigError(f"--out={file}: cannot be written: {error}") from error
    return n_tasks
