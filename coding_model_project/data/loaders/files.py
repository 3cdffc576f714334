"""Readers of local files: parquet, JSON lines (also gzipped), JSON, and folders of them."""

from __future__ import annotations

import glob
import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from coding_model_project import strict_json
from coding_model_project.contained import below, check_plain
from coding_model_project.data.loaders.base import Located, Row, SetAside
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.extras import extra

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".json")
_BATCH_ROWS = 64  # rows of CodeContests hold megabytes of tests each


def read_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[Located]:
    """Yield the rows of a file or folder, each with its location.

    Args:
        columns: the columns to read of parquet files; empty reads all.

    Raises:
        ConfigError: the file does not exist, or its format is unknown.
        DataError: it is damaged; names file and line.
    """
    if path.is_dir():
        yield from _folder(path, columns)
    elif not path.exists():
        raise ConfigError(f"{path}: no such file")
    elif path.name.endswith(".parquet"):
        yield from _parquet(path, columns)
    elif path.name.endswith((".jsonl", ".jsonl.gz")):
        yield from _json_lines(path)
    elif path.name.endswith(".json"):
        yield from _json(path)
    elif path.name.endswith(".arrow"):
        yield from _arrow(path)
    else:
        raise ConfigError(f"{path}: expected {', '.join(SUFFIXES)} or a folder of them")


def _json_lines(path: Path) -> Iterator[Located]:
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield f"{path}:{number}", _parse(line, f"{path}:{number}")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}:{number + 1}: the gzip file is damaged or truncated: {error}"
        ) from error


def _parse(line: bytes, where: str) -> Row | SetAside:
    try:
        row = strict_json.loads(line)
    except strict_json.UnusableValue as error:
        return SetAside(where=where, reason=str(error))
    except ValueError as error:
        raise DataError(f"{where}: invalid JSON, perhaps truncated: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object")
    return row


def _json(path: Path) -> Iterator[Located]:
    try:
        content = strict_json.loads(path.read_bytes())
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise DataError(f"{path}:{line}: invalid JSON, perhaps truncated: {error}") from error
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise DataError(f"{path}:1: not a list of objects")
    for number, row in enumerate(content, 1):
        yield f"{path} row {number}", row


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Located]:
    # DuckDB is 100 MB smaller to install than pyarrow, which only training files need.
    import duckdb

    number = 0
    source = {"file": glob.escape(os.fspath(path))}
    try:
        with duckdb.connect(config={"threads": 1}) as connection:  # more threads hold more rows
            query = connection.execute("SELECT * FROM read_parquet($file) LIMIT 0", source)
            names = [column[0] for column in query.description or ()]
            names = [name for name in names if name in columns] or names
            chosen = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
            query = connection.execute(f"SELECT {chosen} FROM read_parquet($file)", source)
            while batch := query.fetchmany(_BATCH_ROWS):
                for values in batch:
                    number += 1
                    yield f"{path} row {number}", dict(zip(names, values, strict=True))
    except duckdb.Error as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path} row {number + 1}: unreadable parquet: {line}") from error


def _arrow(path: Path) -> Iterator[Located]:
    with extra("rows"):
        import pyarrow as pa

    number = 0
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            for batch in stream:
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path} row {number}", row
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} row {number + 1}: unreadable arrow stream: {error}") from error


def _folder(path: Path, columns: Sequence[str]) -> Iterator[Located]:
    """Read a `save_to_disk` folder, whole or one split of it, or a folder of files."""
    if (path / "dataset_dict.json").exists():
        splits = json.loads((path / "dataset_dict.json").read_text())["splits"]
        members = [below(path, str(split)) for split in splits]
    elif (path / "state.json").exists():
        state = json.loads((path / "state.json").read_text())
        members = [below(path, str(file["filename"])) for file in state["_data_files"]]
    else:
        members = [file for file in sorted(path.rglob("*")) if file.name.endswith(SUFFIXES)]
        for file in members:
            check_plain(path, file)
    if not members:
        raise ConfigError(f"{path}: the folder has no {', '.join(SUFFIXES)}")
    for member in members:
        yield from read_rows(member, columns)
