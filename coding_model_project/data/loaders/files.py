"""Readers of local files: parquet, JSON lines (also gzipped), JSON, CSV, and folders of them."""

from __future__ import annotations

import base64
import binascii
import csv
import glob
import gzip
import json
import os
import pickletools
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from coding_model_project import strict_json
from coding_model_project.contained import below, check_plain
from coding_model_project.data.loaders.base import Located, Row, SetAside
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.extras import extra

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv")
_BATCH_ROWS = 64  # rows of CodeContests hold megabytes of tests each

_UNFOLDED = 100
_MAX_LINE = 1 << 30
"""Maximum length of a line; rows of LiveCodeBench hold up to a few hundred MB."""
_TOO_MANY = None
"""The name that `csv` gives to cells beyond the columns."""


def files_of(path: Path) -> list[Path]:
    """Return the files of a path: itself, or those of a folder, which may be one of `save_to_disk`.

    Raises:
        ConfigError: the path does not exist, or the folder has no files of rows.
    """
    if not path.exists():
        raise ConfigError(f"{path}: no such file")
    if not path.is_dir():
        return [path]
    if (path / "dataset_dict.json").exists():
        splits = json.loads((path / "dataset_dict.json").read_text())["splits"]
        return [file for split in splits for file in files_of(below(path, str(split)))]
    if (path / "state.json").exists():
        state = json.loads((path / "state.json").read_text())
        return [below(path, str(file["filename"])) for file in state["_data_files"]]
    files = [file for file in sorted(path.rglob("*")) if file.name.endswith(SUFFIXES)]
    for file in files:
        check_plain(path, file)
    if not files:
        raise ConfigError(f"{path}: the folder has no {', '.join(SUFFIXES)}")
    return files


def read_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[Located]:
    """Yield the rows of a file or folder, each with its location.

    Args:
        columns: the columns to read of parquet files; empty reads all.

    Raises:
        ConfigError: the file does not exist, or its format is unknown.
        DataError: it is damaged; names file and line.
    """
    for file in files_of(path):
        if file.name.endswith(".parquet"):
            yield from _parquet(file, columns)
        elif file.name.endswith((".jsonl", ".jsonl.gz")):
            yield from _json_lines(file)
        elif file.name.endswith(".json"):
            yield from _json(file)
        elif file.name.endswith(".csv"):
            yield from _csv(file)
        elif file.name.endswith(".arrow"):
            yield from _arrow(file)
        else:
            raise ConfigError(f"{file}: expected {', '.join(SUFFIXES)} or a folder of them")


def _json_lines(path: Path) -> Iterator[Located]:
    number = 0
    left = most_unfolded(path.stat().st_size)
    longest = min(_MAX_LINE, left)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(iter(partial(file.readline, longest + 1), b""), 1):
                left -= len(line)
                if left < 0 or len(line) > longest:
                    raise _too_large(f"{path}:{number}")
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
        raise DataError(f"{where}: {strict_json.line_fault(line, error)}") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object")
    return row


def _json(path: Path) -> Iterator[Located]:
    try:
        content = strict_json.loads(path.read_bytes())
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise DataError(f"{path}:{line}: invalid JSON, perhaps truncated: {error}") from error
    while isinstance(content, dict):  # {"data": [row, …]}, or rows by their ids
        values = list(content.values())
        content = values[0] if len(values) == 1 else values
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise DataError(f"{path}:1: not a list of objects")
    for number, row in enumerate(content, 1):
        yield f"{path} row {number}", row


def _csv(path: Path) -> Iterator[Located]:
    """Yield the rows below a line of names. Commas, semicolons or tabs divide cells; empty is absent."""
    csv.field_size_limit(_MAX_LINE)
    number = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            mark = next((one for one in ",;\t" if one in head), ",")
            file.seek(0)
            table = csv.DictReader(file, restkey=_TOO_MANY, restval="", strict=True, delimiter=mark)
            names = list(table.fieldnames or ())
            if twice := [name for name in names if names.count(name) > 1]:
                raise DataError(f"{path}:1: two columns are named {twice[0]!r}; rename one")
            for row in table:
                number = table.line_num
                if _TOO_MANY in row:
                    raise DataError(f"{path}:{number}: more cells than the {len(row) - 1} columns")
                yield f"{path}:{number}", {name: cell or None for name, cell in row.items()}
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number + 1}: {strict_json.line_fault(b'', error)}") from error
    except csv.Error as error:
        raise DataError(f"{path}:{number + 1}: unreadable CSV: {error}") from error


def first_row(path: Path) -> Row | None:
    """Return the first usable row of a file or folder, of parquet without reading the others.

    Returns:
        None without one.
    """
    first = files_of(path)[0]
    rows = _parquet(first, (), "LIMIT 1") if first.name.endswith(".parquet") else read_rows(first)
    return next((row for _, row in rows if not isinstance(row, SetAside)), None)


def _parquet(path: Path, columns: Sequence[str], limit: str = "") -> Iterator[Located]:
    # DuckDB is 100 MB smaller to install than pyarrow, which only training files need.
    import duckdb

    number = 0
    source = {"file": glob.escape(os.fspath(path))}
    table = f"(SELECT * FROM read_parquet($file) {limit})"
    try:
        with duckdb.connect(config={"threads": 1}) as connection:  # more threads hold more rows
            found = connection.sql("SELECT * FROM read_parquet($file)", params=source)
            types = dict(zip(found.columns, found.types, strict=True))
            names = [name for name in types if name in columns] or list(types)
            chosen = {name: '"' + name.replace('"', '""') + '"' for name in names}
            # DuckDB copies each row's text, which a dictionary in the file may hold once for all.
            sizes = " + ".join(_sql_size(chosen[name], types[name]) for name in names)
            query = connection.execute(f"SELECT sum({sizes}) FROM {table}", source)
            ((n_bytes,),) = query.fetchall()
            if int(n_bytes or 0) > most_unfolded(path.stat().st_size):
                raise _too_large(str(path))
            query = connection.execute(f"SELECT {', '.join(chosen.values())} FROM {table}", source)
            while batch := query.fetchmany(_BATCH_ROWS):
                for values in batch:
                    number += 1
                    yield f"{path} row {number}", dict(zip(names, values, strict=True))
    except duckdb.Error as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path} row {number + 1}: unreadable parquet: {line}") from error


def _sql_size(column: str, kind: Any, depth: int = 0) -> str:
    """Return the SQL of a column's size in bytes: 8 for each value, and the length of texts."""
    one = f"x{depth}"

    def items(values: str, of: Any) -> str:
        sizes = f"[{_sql_size(one, of, depth + 1)} for {one} in {values}]"
        return f"coalesce(list_sum({sizes}), 0)"

    match kind.id, kind.children if kind.id in ("struct", "list", "array", "map") else []:
        case "varchar", _:
            return f"(8 + coalesce(strlen({column}), 0))"
        case "blob", _:
            return f"(8 + coalesce(octet_length({column}), 0))"
        case "struct", children:
            names = [name.replace("'", "''") for name, _ in children]
            parts = (
                _sql_size(f"struct_extract({column}, '{name}')", of, depth)
                for name, (_, of) in zip(names, children, strict=True)
            )
            return f"({' + '.join(parts)})"
        case "list" | "array", [(_, of), *_]:
            return f"(8 + {items(column, of)})"
        case "map", [(_, key), (_, value)]:
            keys, values = (f"{side}({column})" for side in ("map_keys", "map_values"))
            return f"(8 + {items(keys, key)} + {items(values, value)})"
    return "8"


def _arrow(path: Path) -> Iterator[Located]:
    with extra("rows"):
        import pyarrow as pa

    number = 0
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            left = most_unfolded(path.stat().st_size)
            for batch in stream:
                for at in range(batch.num_rows):
                    number += 1
                    (row,) = batch.slice(at, 1).to_pylist()
                    left -= _size(row)
                    if left < 0:
                        raise _too_large(f"{path} row {number}")
                    yield f"{path} row {number}", row
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} row {number + 1}: unreadable arrow stream: {error}") from error


def most_unfolded(n_bytes: int) -> int:
    """Return the maximum size of what so many compressed bytes unfold to, in bytes.

    A column of a single text, or zeros, unfold to a million times their size.
    """
    return (128 << 20) + _UNFOLDED * n_bytes


def _too_large(where: str) -> DataError:
    return DataError(
        f"{where}: the file unfolds to more than {_UNFOLDED} times its size, as no data set does"
    )


def _size(value: object) -> int:
    """Return the approximate memory of a value, in bytes."""
    if isinstance(value, str | bytes):
        return 50 + len(value)
    if isinstance(value, list | tuple):
        return 50 + sum(map(_size, value))
    return 50 + sum(map(_size, value.values())) if isinstance(value, dict) else 50


# ── packed texts ──────────────────────────────────────────────────────────────────────────────────
#
# LiveCodeBench stores tests as base64 → zlib → pickle → JSON text: a pickle of one text and
# nothing else. A pickle is a program, so no unpickler runs: the text is an argument in its opcodes.


MAX_BYTES = 1 << 30
"""Maximum size of the decompressed pickle, since a small text can unpack to any size. Real rows hold up
to a few hundred MB."""

_TEXTS = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
"""Opcodes whose argument is a text."""

_AROUND = {"PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"}
"""Opcodes beside a single text, at most one of each."""


class HostilePickle(ValueError):
    """Bytes that are not the pickle of a text."""


def text_of(data: bytes) -> str:
    """Return the text of a pickle.

    Raises:
        HostilePickle: it holds something else than one text, or is not a pickle.
    """
    try:
        opcodes = list(islice(pickletools.genops(data), len(_AROUND) + 2))
    except ValueError as error:
        raise HostilePickle(f"not a pickle: {error}") from error
    texts: list[Any] = []
    for opcode, argument, _ in opcodes:
        if opcode.name in _TEXTS:
            texts.append(argument)
        elif opcode.name not in _AROUND:
            raise HostilePickle(f"a pickle that uses {opcode.name}, not one text")
    if len(texts) != 1:
        raise HostilePickle(f"a pickle of {len(texts)} texts, not one")
    return texts[0]


def decode(text: str, *, max_bytes: int = MAX_BYTES) -> str:
    """Decode base64 → zlib → pickle of a text.

    Raises:
        HostilePickle: a step fails, or the unpacked pickle exceeds `max_bytes`.
    """
    try:
        packed = base64.b64decode(text, validate=True)
        unpacker = zlib.decompressobj()
        max_bytes = min(max_bytes, most_unfolded(len(packed)))
        data = unpacker.decompress(packed, max_bytes)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise HostilePickle(f"not base64 of zlib: {error}") from error
    if unpacker.unconsumed_tail:
        raise HostilePickle(f"unpacks to more than {max_bytes} bytes")
    if not unpacker.eof:
        raise HostilePickle("the compressed data is truncated")
    return text_of(data)
