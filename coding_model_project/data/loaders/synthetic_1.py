"""SYNTHETIC-1: Prime Intellect's verifiable problems of APPS, CodeContests, Codeforces and TACO.

A row is one answer of a model to a problem; each problem is loaded once. Rows of other tasks (maths, code
understanding, real changes) and of unsupported languages are set aside. The task data without answers,
`PrimeIntellect/verifiable-coding-problems`, has the same columns and loads by --path.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from coding_model_project.data.loaders.base import Part, Published, Row, Unusable, text
from coding_model_project.data.loaders.cases import (
    call_cases,
    from_json,
    stdin_tests,
    stdin_text,
    with_starter,
)
from coding_model_project.data.loaders.codecontests import refuse_any_answer
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.grading.extract import extract
from coding_model_project.types import Limits, Problem, Test

TASK = "verifiable_code"
LANGUAGES = ("python", "cpp", "javascript")

_LEAD = "Solve the following coding problem using the programming language"
_END = "Now solve the problem and return the code."
"""The fixed text around the statement in their prompts, which ours replace."""


def problem(row: Row, part: Part, index: int) -> Problem:
    """Convert a row of task type "verifiable_code"."""
    if row.get("task_type") != TASK:
        raise Unusable(f"task type {row.get('task_type')!r}; only {TASK!r} is judged by tests")
    info = _decoded(row["verification_info"])
    language = str(info.get("language") or "python").lower()
    if language not in LANGUAGES:
        raise Unusable(f"programs in {language}, which is not judged here")
    statement = _statement(text(row, "prompt"))
    refuse_any_answer(statement)
    tests, function = _tests(info.get("test_cases"))
    split = part.split or "train"
    return Problem(
        id=f"synthetic_1/{row.get('problem_id') or f'{split}-{index}'}",
        split=split,
        statement=with_starter(statement, None, function),
        tests=tests,
        limits=Limits(cpu_s=10.0, wall_s=30.0, output_kb=16_384),
        entry_point=function,
        language=language,
        tags=tuple(str(row[key]) for key in ("source",) if row.get(key)),
        gold=_solution(row.get("gold_standard_solution")),
    )


def _tests(cases: Any) -> tuple[tuple[Test, ...], str | None]:
    if not isinstance(cases, list) or not cases:
        raise Unusable("no hidden tests")
    kinds = {str(case.get("type") or "stdin_stdout") for case in cases}
    if kinds == {"function_call"}:
        return call_cases(cases), str(cases[0]["fn_name"])
    if kinds == {"stdin_stdout"}:
        pairs = [(stdin_text(case["input"]), stdin_text(case["output"])) for case in cases]
        return stdin_tests(pairs), None
    raise Unusable(f"tests of types {', '.join(sorted(kinds))}")


def _decoded(kept: Any) -> Mapping[str, Any]:
    """Decode JSON, or the `str` of the same value in Python."""
    if isinstance(kept, str) and kept.lstrip().startswith("{'"):
        try:
            kept = ast.literal_eval(kept)
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise Unusable("field 'verification_info' cannot be read") from error
    info = from_json(kept, "verification_info")
    if not isinstance(info, Mapping):
        raise Unusable("field 'verification_info' holds no tests")
    return info


def _statement(prompt: str) -> str:
    first, newline, rest = prompt.partition("\n")
    statement = rest if newline and first.startswith(_LEAD) else prompt
    return statement.strip().removesuffix(_END).strip()


def _solution(kept: Any) -> tuple[str, ...]:
    code = extract(kept, bare=True).code if isinstance(kept, str) and kept.strip() else None
    return (code,) if code else ()


LOADER = TableLoader(
    published=Published(
        name="synthetic_1",
        licence="Apache-2.0",
        fields=("task_type", "prompt", "verification_info", "problem_id"),
        optional=("gold_standard_solution", "source"),
        parts=(
            Part(
                split="train",
                files=(
                    "SYNTHETIC-1/data/train-*.parquet",
                    "verifiable-coding-problems/data/train-*.parquet",
                    "synthetic_1.parquet",
                    "synthetic_1.jsonl",
                ),
            ),
        ),
        hub="PrimeIntellect/SYNTHETIC-1",
        tests="standard input, calls",
    ),
    to_problem=problem,
    once=True,
)
