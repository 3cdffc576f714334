"""verl's training files: prompts, and problems by reference.

A row names its problem's id; the tests lie once in the problems file (`data.problems`), not in every
row. Files are written only for roles their rows may have (`data.governance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coding_model_project.data.governance import is_test_only
from coding_model_project.errors import ConfigError
from coding_model_project.prompts import PromptStyle, solution_message, solve_messages
from coding_model_project.types import Problem


def rl_rows(problems: Iterable[Problem], style: PromptStyle) -> list[dict[str, Any]]:
    """Rows for verl's RL data set: a prompt, and the problem's id as ground truth."""
    return [
        {
            "data_source": source(problem),
            "prompt": solve_messages(problem, style=style),
            "ability": "code",
            "reward_model": {"style": "rule", "ground_truth": problem.id},
            "extra_info": {
                "split": problem.split,
                "index": index,
                "difficulty": problem.difficulty or 0,
            },
        }
        for index, problem in enumerate(problems)
    ]


def sft_rows(problems: Iterable[Problem], style: PromptStyle) -> list[dict[str, Any]]:
    """Rows for verl's SFT data set: a conversation that ends in the first gold solution."""
    return [
        {
            "data_source": source(problem),
            "messages": [
                *solve_messages(problem, style=style),
                solution_message(problem.gold[0], style=style),
            ],
            "extra_info": {"split": problem.split, "problem": problem.id},
        }
        for problem in problems
    ]


def source(problem: Problem) -> str:
    """The data set a problem is from: its id's first part."""
    return problem.id.split("/")[0]


def write_rows(path: Path, rows: Sequence[dict[str, Any]], *, trains: bool) -> None:
    """Write rows as parquet, atomically.

    Args:
        trains: the file is for training; rows of a test-only data set are refused.

    Raises:
        ConfigError: no rows, or rows that must not train.
    """
    if not rows:
        raise ConfigError(f"{path}: no rows to write")
    if trains:
        for row in rows:
            name = f"{row['data_source']}_{row['extra_info']['split']}"
            if is_test_only(row["data_source"]) or is_test_only(name):
                raise ConfigError(f"{path}: {name} is test only and must not train")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    pq.write_table(pa.Table.from_pylist(list(rows)), partial)
    partial.replace(path)
