"""CodeContests: competitive problems, with accepted and rejected submissions.

This loader sets aside rows with known flaws: statements with pictures, problems that read files, and
problems that accept any of several answers, which need a checker that the set does not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from coding_model_project.data.loaders.base import Part, Published, Row, Unusable, number, text
from coding_model_project.data.loaders.cases import pairs, stdin_tests
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.types import Limits, Problem

MAX_SOLUTIONS = 5
"""Maximum number of gold and of known-bad programs per problem; some have hundreds."""

PYTHON_FACTOR = 2.0
"""Factor of published time limits, which are for compiled programs on the judges' machines."""

PYTHON_3 = 3
_ANY_ANSWER = re.compile(
    r"(print|output|find|return|report)\s+any\b|any (one )?of (them|these)\b|"
    r"(multiple|several|many|more than one) (possible |valid |correct |optimal )*"
    r"(answers?|solutions?|ways)[^.]{0,60}\bany\b",
    re.I,
)


def problem(row: Row, part: Part, index: int) -> Problem:
    """Convert a row of any split."""
    statement = text(row, "description")
    if row.get("input_file") or row.get("output_file"):
        raise Unusable("reads or writes files")
    refuse_any_answer(statement)
    hidden = [*pairs(row.get("private_tests")), *pairs(row.get("generated_tests"))]
    shown = pairs(row.get("public_tests"))
    rating = number(row, "cf_rating")
    return Problem(
        id=f"codecontests/{part.split}/{index}",
        split=part.split or "train",
        statement=statement,
        tests=(*stdin_tests(shown, public=True), *stdin_tests(hidden)),
        limits=_limits(row),
        difficulty=int(rating) if rating else None,
        tags=tuple(tag for tag in row.get("cf_tags") or () if tag),
        gold=_python(row.get("solutions")),
        bad=_python(row.get("incorrect_solutions")),
    )


def refuse_any_answer(statement: str) -> None:
    """Raise if, by the statement's words, several outputs are right.

    Raises:
        Unusable: several outputs are right.
    """
    if found := _ANY_ANSWER.search(statement):
        words = " ".join(found.group().split())
        raise Unusable(f'needs a checker: the statement says "{words}"')


def limits(cpu_s: float | None, memory_mb: float | None) -> Limits:
    """Convert a judge's limits; missing ones take the defaults."""
    default = Limits()
    cpu = cpu_s * PYTHON_FACTOR if cpu_s else default.cpu_s
    return Limits(
        cpu_s=cpu,
        wall_s=max(default.wall_s, 3 * cpu),
        memory_mb=max(default.memory_mb, int(memory_mb or 0)),
        output_kb=16 * default.output_kb,
    )


def _limits(row: Row) -> Limits:
    given = row.get("time_limit")
    seconds = None
    if isinstance(given, Mapping):
        seconds = (given.get("seconds") or 0) + (given.get("nanos") or 0) / 1e9
    memory = number(row, "memory_limit_bytes")
    return limits(seconds, memory / 2**20 if memory else None)


def _python(submissions: Any) -> tuple[str, ...]:
    """Return the first few distinct programs in Python 3."""
    if not submissions:
        return ()
    marked = zip(submissions["language"], submissions["solution"], strict=True)
    distinct = dict.fromkeys(code for language, code in marked if language == PYTHON_3)
    return tuple(distinct)[:MAX_SOLUTIONS]


def _part(split: str, word: str, n_rows: int) -> Part:
    return Part(
        split=split,
        files=(
            f"data/{word}-*.parquet",
            f"codecontests_{word}.parquet",
            f"codecontests_{word}.jsonl",
        ),
        n_rows=n_rows,
        hub_split=word,
    )


LOADER = TableLoader(
    published=Published(
        name="codecontests",
        licence="CC-BY-4.0",
        fields=("name", "description", "public_tests", "private_tests", "generated_tests"),
        optional=(
            "solutions", "incorrect_solutions", "cf_rating", "cf_tags", "time_limit",
            "memory_limit_bytes", "input_file", "output_file",
        ),
        parts=(
            _part("train", "train", 13_328),
            _part("validation", "valid", 117),
            _part("test", "test", 165),
        ),
        hub="deepmind/code_contests",
        revision="802411c3010cb00d1b05bad57ca77365a3c699d6",
        whole=False,
        tests="standard input",
    ),
    to_problem=problem,
)  # fmt: skip
