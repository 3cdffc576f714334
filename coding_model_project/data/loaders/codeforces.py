"""open-r1/codeforces: problems with official tests, some truncated, some with a generated checker.

A checker is a Python program, `checker.py INPUT ANSWER OUTPUT`, that prints 1 or 0.
"""

from __future__ import annotations

from coding_model_project.data.loaders.base import Part, Published, Row, Unusable, number, text
from coding_model_project.data.loaders.cases import pairs, stdin_tests
from coding_model_project.data.loaders.codecontests import limits, refuse_any_answer
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.grading.checker import CHECKER
from coding_model_project.types import Checker, Problem, Protocol

_SECTIONS = (("input_format", "Input"), ("output_format", "Output"), ("note", "Note"))


def problem(row: Row, part: Part, index: int) -> Problem:
    """Convert a row; its examples become public tests."""
    if row.get("input_mode") not in (None, "stdio"):
        raise Unusable("reads or writes files")
    source = row.get("generated_checker")
    checker = Checker(source=source, protocol=Protocol.score) if source else None
    statement = _statement(row)
    if checker is None:
        refuse_any_answer(statement)
    shown = pairs(row.get("examples"))
    known = set(shown)
    hidden = [pair for pair in pairs(row.get("official_tests")) if pair not in known]
    complete = row.get("official_tests_complete")
    rating = number(row, "rating")
    return Problem(
        id=f"codeforces/{row.get('id') or f'{part.split}-{index}'}",
        split=part.split or "train",
        statement=statement,
        tests=(*stdin_tests(shown, public=True), *stdin_tests(hidden)),
        comparison=CHECKER if checker else "tokens",
        checker=checker,
        limits=limits(number(row, "time_limit"), number(row, "memory_limit")),
        difficulty=int(rating) if rating else None,
        tags=(*(row.get("tags") or ()), *(() if complete else ("official tests cut",))),
    )


def _statement(row: Row) -> str:
    sections = [text(row, "description")]
    for field, heading in _SECTIONS:
        content = row.get(field)
        if isinstance(content, str) and content.strip():
            sections.append(f"{heading}\n\n{content.strip()}")
    for given, expected in pairs(row.get("examples")):
        sections.append(f"Example input\n\n{given.strip()}\n\nExample output\n\n{expected.strip()}")
    return "\n\n".join(sections)


LOADER = TableLoader(
    published=Published(
        name="codeforces",
        licence="CC-BY-4.0",
        fields=("description", "official_tests", "official_tests_complete", "input_mode"),
        optional=(
            "id", "input_format", "output_format", "note", "examples", "generated_checker",
            "time_limit", "memory_limit", "rating", "tags",
        ),
        parts=(
            Part(
                split="train",
                files=("data/train-*.parquet", "codeforces_train.jsonl"),
                n_rows=9_556,
            ),
            Part(split="test", files=("data/test-*.parquet", "codeforces_test.jsonl"), n_rows=468),
        ),
        hub="open-r1/codeforces",
        whole=False,
        tests="standard input, checkers",
    ),
    to_problem=problem,
)  # fmt: skip
