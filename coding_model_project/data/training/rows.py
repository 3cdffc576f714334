"""verl's training files: prompts, and problems by reference.

A row names its problem's id; the problems file (`data.problems`) holds the tests once, not in every row.
Files are written only for permitted roles (`data.governance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from coding_model_project.atomic import replacing
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


def write_rows(path: Path, rows: Iterable[VerlRow], *, trains: bool) -> None:
    """Write rows as parquet, atomically, a group of rows at a time.

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
    schema = pa.Table.from_pylist(group).schema
    with replacing(path) as partial, pq.ParquetWriter(partial, schema) as writer:
        while group:
            for row in group if trains else ():
                refuse_training(row["data_source"], row["extra_info"]["split"], str(path))
            writer.write_table(pa.Table.from_pylist(group).cast(schema))
            group = list(islice(left, _GROUP))


def ids_of_rows(path: Path) -> set[str]:
    """Return the ids of the problems that a file of rows names."""
    with extra("rows"):
        import pyarrow.parquet as pq

    rl = "reward_model" in pq.read_schema(path).names
    rows = pq.read_table(path, columns=["reward_model" if rl else "extra_info"]).to_pylist()
    if rl:
        return {row["reward_model"]["ground_truth"] for row in rows}
    return {row["extra_info"]["problem"] for row in rows}


def refuse_training(name: str, split: str, where: str) -> None:
    """Raise if a split of a data set must not train.

    Raises:
        ConfigError: it must not train.
    """
    if not role(name, split).may_train:
        raise ConfigError(f"{where}: {name}_{split} is test only and must not train")
