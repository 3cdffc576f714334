"""TACO and APPS: problems of contests and Codewars with Python solutions, both in APPS's format.

`input_output` is JSON text {inputs, outputs, fn_name?}, for scripts or calls of a function. Known flaws:
most of TACO's problems fail verification with their own solutions, some of APPS's have no tests, and
TACO contains problems of APPS and CodeContests. Before training, run `data dedup`, then keep only the
problems from `data preflight --passed`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from coding_model_project.data.loaders.base import Part, Published, Row, Unusable, text
from coding_model_project.data.loaders.cases import columns, from_json, with_starter
from coding_model_project.data.loaders.codecontests import limits, refuse_any_answer
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.types import Problem

MAX_SOLUTIONS = 5
"""Maximum number of solutions per problem; some have hundreds."""

_DIFFICULTIES = {
    "introductory": 1, "interview": 2, "competition": 3,
    "EASY": 1, "MEDIUM": 2, "MEDIUM_HARD": 3, "HARD": 4, "VERY_HARD": 5,
}  # fmt: skip
_MEGABYTES = {"g": 1024.0, "m": 1.0, "k": 1 / 1024}


def _taco(row: Row, part: Part, index: int) -> Problem:
    pictures = str(row.get("picture_num") or "0").strip()
    if pictures not in ("", "0", "0.0"):
        raise Unusable("the statement refers to an image")
    tags = _list(row.get("tags")) or _list(row.get("raw_tags"))
    source = row.get("source")
    return _problem(
        row,
        f"taco/{part.split}/{index}",
        part,
        seconds=_amount(row.get("time_limit"))[0],
        megabytes=_memory(row.get("memory_limit")),
        tags=(*((source,) if isinstance(source, str) and source else ()), *tags),
    )


def _apps(row: Row, part: Part, index: int) -> Problem:
    number = row.get("problem_id", row.get("id"))
    return _problem(row, f"apps/{part.split}/{index if number is None else number}", part)


def _problem(
    row: Row,
    name: str,
    part: Part,
    *,
    seconds: float | None = None,
    megabytes: float | None = None,
    tags: tuple[str, ...] = (),
) -> Problem:
    statement = text(row, "question")
    refuse_any_answer(statement)
    kept = row["input_output"]
    if not kept or not str(kept).strip():
        raise Unusable("no hidden tests")
    tests = from_json(kept, "input_output")
    if not isinstance(tests, Mapping) or not tests.get("inputs"):
        raise Unusable("no hidden tests")
    function = tests.get("fn_name") or None
    return Problem(
        id=name,
        split=part.split or "train",
        statement=with_starter(statement, row.get("starter_code"), function),
        tests=columns(tests),
        limits=limits(seconds or 5.0, megabytes),
        entry_point=function,
        difficulty=_DIFFICULTIES.get(str(row.get("difficulty"))),
        tags=tags,
        gold=_solutions(row.get("solutions")),
    )


def _solutions(kept: Any) -> tuple[str, ...]:
    given = from_json(kept, "solutions") if kept else []
    programs = (one.replace("\r\n", "\n") for one in given if isinstance(one, str) and one.strip())
    return tuple(dict.fromkeys(programs))[:MAX_SOLUTIONS]


def _amount(kept: Any) -> tuple[float | None, str]:
    """Parse a number and a unit, such as "2.0 seconds"."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*(\w*)", str(kept or ""))
    return (float(found[1]) or None, found[2].lower()) if found else (None, "")


def _memory(kept: Any) -> float | None:
    number, unit = _amount(kept)
    return number * _MEGABYTES.get(unit[:1], 1.0) if number else None


def _list(kept: Any) -> tuple[str, ...]:
    """Parse a list of words, which TACO stores as a Python literal."""
    if isinstance(kept, str):
        try:
            kept = ast.literal_eval(kept)
        except (ValueError, SyntaxError):
            return ()
    return tuple(one for one in kept or () if isinstance(one, str))


_FIELDS = ("question", "input_output", "solutions")
TACO = TableLoader(
    published=Published(
        name="taco",
        licence="Apache-2.0",
        fields=_FIELDS,
        optional=(
            "starter_code", "difficulty", "source", "tags", "raw_tags", "picture_num",
            "time_limit", "memory_limit",
        ),
        parts=tuple(
            Part(
                split=split,
                files=(
                    f"TACO/ALL/{split}-*.parquet",
                    f"TACO/{split}/data-*.arrow",
                    f"taco_{split}.parquet",
                    f"taco_{split}.jsonl",
                ),
                n_rows=n_rows,
                config="ALL",
            )
            for split, n_rows in (("train", 25_443), ("test", 1_000))
        ),
        hub="BAAI/TACO",
        whole=False,
        tests="standard input, calls",
    ),
    to_problem=_taco,
)  # fmt: skip
APPS = TableLoader(
    published=Published(
        name="apps",
        licence="MIT",
        fields=_FIELDS,
        optional=("problem_id", "id", "starter_code", "difficulty"),
        parts=tuple(
            Part(
                split=split,
                files=(
                    f"apps/{split}.jsonl",
                    f"apps/all/{split}-*.parquet",
                    f"apps_{split}.jsonl",
                    f"apps_{split}.parquet",
                ),
                n_rows=5_000,
                hub_file=f"{split}.jsonl",
            )
            for split in ("train", "test")
        ),
        hub="codeparrot/apps",
        whole=False,
        tests="standard input, calls",
    ),
    to_problem=_apps,
)
