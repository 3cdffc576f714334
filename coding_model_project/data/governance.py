"""Which data may train. What is test only never reaches a training file or a training run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from coding_model_project.errors import ConfigError

TEST_ONLY = frozenset({"humaneval", "codecontests_test", "tinycode_test"})
"""Data sets by name ("source" or "source_split") that may be evaluated on but never trained on."""


def is_test_only(name: str) -> bool:
    """Whether a data set is test only, its name in any spelling ("HumanEval", "openai_humaneval")."""
    plain = "".join(c for c in name.lower() if c.isalnum())
    return any(name.replace("_", "") in plain for name in TEST_ONLY)


def refuse_test_only(path: str | Path) -> None:
    """Refuse a training file whose name or rows belong to a test-only data set.

    Rows are known by their `data_source` and by `extra_info.split`.

    Raises:
        ConfigError: naming the file and what it holds.
    """
    path = Path(path)
    if is_test_only(path.stem):
        raise ConfigError(f"data.train_files: {path} is test only ({path.stem}) and must not train")
    if path.suffix != ".parquet" or not path.exists():
        return
    names = set(pq.read_schema(path).names)
    columns = [name for name in ("data_source", "extra_info") if name in names]
    for row in pq.read_table(path, columns=columns).to_pylist():
        source = str(row.get("data_source", ""))
        split = str((row.get("extra_info") or {}).get("split", ""))
        if is_test_only(source) or is_test_only(f"{source}_{split}"):
            raise ConfigError(
                f"data.train_files: {path} holds rows of {source} ({split}), which is test only"
            )
