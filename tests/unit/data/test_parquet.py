"""Rows of parquet files: values, columns and order as written, whatever the file is called."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coding_model_project.data.loaders.files import read_rows
from coding_model_project.errors import DataError

ROWS = [
    {
        "id": number,
        "tests": {"input": ["1\n", "2\n"], "output": ["1"]},
        "cases": [{"in": "a", "out": [1.5]}, {"in": "b", "out": None}],
        "empty": [],
        "none": None if number % 2 else "x",
        "raw": b"\x00\xff",
        'quo"ted': 2**60 + number,
    }
    for number in range(200)
]


def test_rows_come_back_as_written(tmp_path):
    path = tmp_path / "odd [1] *name?.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=30)
    found = list(read_rows(path))
    assert [row for _, row in found] == ROWS
    assert found[0][0] == f"{path} row 1"
    (_, first), *_ = read_rows(path, ["tests", "id", "unknown"])
    assert first == {"id": 0, "tests": ROWS[0]["tests"]}


@pytest.mark.parametrize("content", [b"", b"not parquet", b"PAR1" + bytes(50) + b"PAR1"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "bad.parquet"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{path} row 1: unreadable parquet: "):
        list(read_rows(path))
