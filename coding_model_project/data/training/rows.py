"""verl's training files: prompts, problems by reference, and the manifest beside them.

A row names its problem's id; the problems file (`data.problems`) holds the tests once, not in every row.
Files are written only for permitted roles (`data.governance`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from coding_model_project.atomic import replacing, write_json
from coding_model_project.data.files import file_hash
from coding_model_project.data.governance import role
from coding_model_project.errors import ConfigError
from coding_model_project.extras import extra
from coding_model_project.grading.prompts import PromptStyle, solution_message, solve_messages
from coding_model_project.types import Problem

VerlRow = dict[str, Any]
"""A row of a training file, with verl's columns."""

_GROUP = 20_000
"""Number of rows held in memory; the first ones decide the columns' types."""


def rl_rows(
    problems: Iterable[Problem], style: PromptStyle, *, weights: Mapping[str, float] | None = None
) -> Iterator[VerlRow]:
    """Yield rows for verl's RL data set: a prompt, and the problem's id as ground truth.

    Args:
        weights: the weight of each data source in the mixture, stored in the row; by default 1.
    """
    for index, problem in enumerate(problems):
        yield {
            "data_source": source(problem),
            "prompt": solve_messages(problem, style=style),
            "ability": "code" if problem.asks_for_code else problem.graded_by,
            "reward_model": {"style": "rule", "ground_truth": problem.id},
            "extra_info": {
                "split": problem.split,
                "index": index,
                "difficulty": problem.difficulty or 0,
                "weight": float((weights or {}).get(source(problem), 1.0)),
            },
        }


def sft_rows(problems: Iterable[Problem], style: PromptStyle) -> Iterator[VerlRow]:
    """Yield rows for verl's SFT data set: conversations that end in the first gold solution."""
    return (sft_row(problem, problem.gold[0], style) for problem in problems)


def sft_row(problem: Problem, code: str, style: PromptStyle) -> VerlRow:
    """Return a row for verl's SFT data set: a conversation that ends in this solution."""
    return {
        "data_source": source(problem),
        "messages": [
            *solve_messages(problem, style=style),
            solution_message(code, style=style, language=problem.language),
        ],
        "extra_info": {"split": problem.split, "problem": problem.id},
    }


def source(problem: Problem) -> str:
    """Return the data set of a problem."""
    return source_of(problem.id)


def source_of(problem_id: str) -> str:
    """Return the data set of a problem, the first part of its id."""
    return problem_id.split("/")[0]


def write_rows(path: Path, rows: Iterable[VerlRow], *, trains: bool) -> int:
    """Write rows as parquet, atomically, a group of rows at a time; return their number.

    Args:
        trains: whether the file is for training, so that rows of data that must not train are an error.

    Raises:
        ConfigError: there are no rows, or rows that must not train.
    """
    with extra("rows"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    left = iter(rows)
    group = list(islice(left, _GROUP))
    if not group:
        raise ConfigError(f"{path}: no rows to write")
    schema, count = pa.Table.from_pylist(group).schema, 0
    with replacing(path) as partial, pq.ParquetWriter(partial, schema) as writer:
        while group:
            for row in group if trains else ():
                refuse_training(row["data_source"], row["extra_info"]["split"], str(path))
            writer.write_table(pa.Table.from_pylist(group).cast(schema))
            count += len(group)
            group = list(islice(left, _GROUP))
    return count


def refuse_training(name: str, split: str, where: str) -> None:
    """Raise if a split of a data set must not train.

    Raises:
        ConfigError: it must not train.
    """
    if not role(name, split).may_train:
        raise ConfigError(f"{where}: {name}_{split} is test only and must not train")


# ── manifests ──────────────────────────────────────────────────────────────────────────────────────

MANIFEST = "manifest.json"
PROBLEMS = "problems.jsonl"


def is_made(path: Path, settings: Mapping[str, Any]) -> bool:
    """Return whether `write_manifest` wrote this manifest for the same settings of a generator.

    Raises:
        ConfigError: the folder holds files that no generator made, which making would overwrite.
    """
    if not path.exists():
        return False
    made = json.loads(path.read_text())["settings"]
    if "generator" not in made:
        raise ConfigError(
            f"coding.data_dir={path.parent} holds your own files, which the embedded tasks would "
            "overwrite; set coding.dataset=null to train on them (docs/my-data.md), or another "
            "coding.data_dir"
        )
    return made == settings


def style_of_rows(path: Path) -> PromptStyle | None:
    """Return the prompt style of a file of rows by the manifest beside it.

    None if there is no manifest, or if the file has changed since.
    """
    try:
        manifest = json.loads(path.with_name("manifest.json").read_text())
        recorded = manifest["sha256"][path.name]
        style = PromptStyle(manifest["settings"]["style"])
        content = file_hash(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or another program's
        return None
    return style if content == recorded else None


def write_manifest(path: Path, settings: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """Write a manifest. Call it last, since a manifest marks the files as complete.

    Args:
        counts: the number of rows of every file; their hashes are written too.
    """
    files = [PROBLEMS, *(f"{name}.parquet" for name in sorted(counts))]
    hashes = {name: file_hash(path.parent / name) for name in files}
    write_json(path, {"settings": settings, "counts": counts, "sha256": hashes})
