"""Rows made for verl: a prompt, a data source and the ground truth for its reward functions.

`eurus` is Eurus-2-RL-Data; `verl` is any file in the form that verl's own rewards expect. For code, the
ground truth is {inputs, outputs, fn_name?} or {assert_case: […]} (both accepted by verl's SandboxFusion
reward), as an object or as JSON text. For maths, it is the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from coding_model_project.data.governance import split_word
from coding_model_project.data.loaders.base import (
    Part,
    Place,
    Published,
    Row,
    SetAside,
    Trail,
    Unusable,
)
from coding_model_project.data.loaders.cases import columns, from_json, with_starter
from coding_model_project.data.loaders.codecontests import refuse_any_answer
from coding_model_project.data.loaders.maths import math_problem
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.errors import ConfigError
from coding_model_project.types import Asserts, Limits, Problem, Test

FIELDS = ("data_source", "prompt", "reward_model")

_REQUEST = "Write Python code to solve the problem."
"""The start of the instructions at the end of Eurus's prompts, which ours replace."""


def problem(row: Row, part: Part, index: int) -> Problem:
    """Convert a row of Eurus with the ability "code" or "math"."""
    return _problem(row, part, index, "eurus")


def _plain(row: Row, part: Part, index: int, *, name: str) -> Problem:
    """Convert a row of any file. The id keeps its source, so that a test-only set stays test only."""
    source = "".join(c if c.isalnum() else "_" for c in str(row["data_source"])).strip("_").lower()
    return _problem(row, part, index, f"{name}_{source}" if source else name)


def _problem(row: Row, part: Part, index: int, source: str) -> Problem:
    extra = row.get("extra_info")
    given = extra.get("split") if isinstance(extra, Mapping) else None
    split = split_word(str(given or part.split or "train"))
    name = f"{source}/{split}/{index}"
    statement = _statement(row["prompt"])
    truth = row["reward_model"]["ground_truth"]
    if row.get("ability") not in (None, "code", "math"):
        raise Unusable(f"ability {row.get('ability')!r} is neither code nor math")
    tests = None if row.get("ability") == "math" else _tests(truth)
    if tests is None:
        if row.get("ability") != "math":
            raise Unusable(
                "the ground truth holds no tests; rows made by `data rows` name a problem: use the "
                "problems.jsonl beside them"
            )
        return math_problem(name, split, statement, str(truth))
    refuse_any_answer(statement)
    found, function = tests
    return Problem(
        id=name,
        split=split,
        statement=with_starter(statement, None, function),
        tests=found,
        limits=Limits(cpu_s=10.0, wall_s=30.0, output_kb=16_384),
        entry_point=function,
        tags=(str(row["data_source"]),),
    )


def _tests(truth: Any) -> tuple[tuple[Test, ...], str | None] | None:
    if isinstance(truth, str) and not truth.lstrip().startswith("{"):
        return None
    kept = from_json(truth, "reward_model.ground_truth")
    if not isinstance(kept, Mapping):
        return None
    function = kept.get("fn_name") or None
    asserts = kept.get("assert_case")
    if isinstance(asserts, list) and asserts:
        if any(kept.get("inputs") or ()):
            raise Unusable("the ground truth has assertions and inputs")
        code = [Asserts(source=str(one), entry_point=function) for one in asserts]
        return tuple(Test(input=one) for one in code), function
    return columns(kept), function


def _statement(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt.strip()
    turns = [turn["content"] for turn in prompt if turn["role"] == "user"]
    if not turns:
        raise Unusable("the prompt has no user turn")
    return turns[-1].split(_REQUEST)[0].strip()


LOADER = TableLoader(
    published=Published(
        name="eurus",
        licence="MIT",
        fields=FIELDS,
        optional=("ability", "extra_info"),
        parts=(
            Part(split="train", files=("train.parquet", "data/train-*.parquet")),
            Part(split="validation", files=("validation.parquet", "data/validation-*.parquet")),
        ),
        hub="PRIME-RL/Eurus-2-RL-Data",
        whole=False,
        tests="standard input, calls, answers",
    ),
    to_problem=problem,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlLoader:
    """See `base.Loader`. Loads any file of rows for verl; without a publisher, it needs a path."""

    name: str = "verl"

    @property
    def published(self) -> Published:
        return Published(
            name=self.name,
            licence="yours",
            fields=FIELDS,
            optional=("ability", "extra_info"),
            parts=(
                Part(split="train", files=()),
                Part(split="validation", files=(), hub_split="val"),
                Part(split="test", files=()),
            ),
            whole=False,
            tests="standard input, calls, asserts, answers",
        )

    def items(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """See `base.Loader.items`."""
        if place.path is None:
            raise ConfigError(
                f"{self.name}: rows for verl have no publisher; pass their file: {self.name}=PATH"
            )
        to_problem = partial(_plain, name=self.name)
        return TableLoader(published=self.published, to_problem=to_problem).items(place, trail)
