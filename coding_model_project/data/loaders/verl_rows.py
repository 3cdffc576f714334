"""Rows made for verl, as Eurus-2-RL-Data has them: prompt, ability and ground truth in one row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coding_model_project.data.loaders.base import Part, Published, Row, Unusable
from coding_model_project.data.loaders.cases import columns, from_json
from coding_model_project.data.loaders.codecontests import refuse_any_answer
from coding_model_project.data.loaders.maths import math_problem
from coding_model_project.data.loaders.table import TableLoader, split_word
from coding_model_project.types import Limits, Problem

_REQUEST = "Write Python code to solve the problem."
"""Eurus ends its prompts with this and how to fence the answer; our prompts ask in their own words."""


def problem(row: Row, part: Part, index: int) -> Problem:
    """A row of ability "code" or "math"."""
    extra = row.get("extra_info")
    given = extra.get("split") if isinstance(extra, Mapping) else None
    split = split_word(str(given or part.split or "train"))
    name = f"eurus/{split}/{index}"
    statement = _statement(row["prompt"])
    truth = row["reward_model"]["ground_truth"]
    if row.get("ability") == "math":
        return math_problem(name, split, statement, str(truth))
    if row.get("ability") not in (None, "code"):
        raise Unusable(f"ability {row.get('ability')!r} is neither code nor math")
    refuse_any_answer(statement)
    tests = from_json(truth, "reward_model.ground_truth")
    if not isinstance(tests, Mapping):
        raise Unusable("the ground truth holds no tests")
    return Problem(
        id=name,
        split=split,
        statement=statement,
        tests=columns(tests),
        limits=Limits(cpu_s=10.0, wall_s=30.0, output_kb=16_384),
        entry_point=tests.get("fn_name"),
        tags=(str(row["data_source"]),),
    )


def _statement(prompt: Any) -> str:
    asked = [turn["content"] for turn in prompt if turn["role"] == "user"]
    if not asked:
        raise Unusable("the prompt has no user turn")
    return asked[-1].split(_REQUEST)[0].strip()


LOADER = TableLoader(
    published=Published(
        name="eurus",
        licence="MIT",
        fields=("data_source", "prompt", "reward_model"),
        optional=("ability", "extra_info"),
        parts=(
            Part(split="train", files=("train.parquet", "data/train-*.parquet")),
            Part(split="validation", files=("validation.parquet", "data/validation-*.parquet")),
        ),
        hub="PRIME-RL/Eurus-2-RL-Data",
        whole=False,
    ),
    to_problem=problem,
)
