"""CodeContests+: problems of CodeContests, each with generated, verified tests and a checker.

A checker is a C++ program that uses testlib. One that only compares tokens is replaced by our own
comparison. A problem with any other checker is judged by it, or set aside if it cannot be compiled here.
"""

from __future__ import annotations

import re
from typing import Any

from coding_model_project.data.loaders.base import Part, Published, Row, Unusable, number, text
from coding_model_project.data.loaders.cases import pairs, stdin_tests
from coding_model_project.data.loaders.codecontests import MAX_SOLUTIONS, limits
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.grading.checker import CHECKER
from coding_model_project.sandbox.embedded.languages import cpp
from coding_model_project.types import Checker, Problem

SIZES = ("1x", "2x", "3x", "4x", "5x")
_PLAIN_CHECKER = re.compile(
    r"\b(wcmp|lcmp|fcmp|ncmp|icmp|hcmp)\b|compare sequences of tokens", re.I
)
_READS_MORE = re.compile(r"\binf\s*\.")
"""The sign of a checker that reads the test's input, and so judges more than equality."""


def problem(row: Row, part: Part, index: int) -> Problem:
    """Convert a row of any size."""
    statement = text(row, "description")
    checker = _checker(row.get("checker"))
    title = row.get("title")
    time_limit = number(row, "time_limit")
    return Problem(
        id=f"codecontests_plus/{text(row, 'id')}",
        split=part.split or "train",
        statement=f"{title}\n\n{statement}" if isinstance(title, str) and title else statement,
        tests=stdin_tests(pairs(row.get("test_cases"))),
        comparison=CHECKER if checker else "tokens",
        checker=checker,
        # Milliseconds in the published rows; seconds in some re-uploads.
        limits=limits(
            time_limit / 1000 if time_limit and time_limit >= 100 else time_limit,
            number(row, "memory_limit"),
        ),
        gold=_python(row.get("correct_submissions")),
        bad=_python(row.get("incorrect_submissions")),
    )


def _checker(source: Any) -> Checker | None:
    """Return the row's checker, if it does more than compare tokens.

    Raises:
        Unusable: it cannot be compiled here.
    """
    if not source or (_PLAIN_CHECKER.search(source) and not _READS_MORE.search(source)):
        return None
    if cpp.find() is None:
        raise Unusable("needs its checker program: install g++ with static libraries")
    if "testlib.h" in source and not cpp.has_testlib():
        raise Unusable(f"needs its checker program: set {cpp.TESTLIB} to the path of testlib.h")
    return Checker(source=source, language="cpp")


def _python(submissions: Any) -> tuple[str, ...]:
    if not submissions:
        return ()
    if isinstance(submissions, dict):  # some parquet readers return a list of objects like this
        submissions = [
            {"language": language, "code": code}
            for language, code in zip(submissions["language"], submissions["code"], strict=True)
        ]
    ours = dict.fromkeys(
        one["code"]
        for one in submissions
        if str(one["language"]).lower() in ("py3", "python3", "3")
    )
    return tuple(ours)[:MAX_SOLUTIONS]


def loader(size: str = "1x") -> TableLoader:
    """Return the loader of the set with this many times the tests ("1x" to "5x")."""
    return TableLoader(
        published=Published(
            name="codecontests_plus",
            licence="CC-BY-4.0",
            fields=("id", "description", "test_cases"),
            optional=(
                "title", "time_limit", "memory_limit", "checker",
                "correct_submissions", "incorrect_submissions",
            ),
            parts=(
                Part(
                    split="train",
                    files=(
                        f"ccplus_{size}/*.parquet",
                        f"{size}/*.parquet",
                        f"codecontests_plus_{size}.parquet",
                        f"codecontests_plus_{size}.jsonl",
                    ),
                    n_rows=11_690,
                    config=size,
                ),
            ),
            hub="ByteDance-Seed/Code-Contests-Plus",
            tests="standard input, checkers",
        ),
        to_problem=problem,
    )  # fmt: skip


LOADER = loader()
