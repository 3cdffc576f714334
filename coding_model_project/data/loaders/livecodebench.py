"""LiveCodeBench: contest problems by date, in releases that each add a file. Test only; no solutions.

Each test says whether it is for a script or a call. Private tests are JSON, or packed for `safe_pickle`.
"""

from __future__ import annotations

from typing import Any

from coding_model_project.data.loaders.base import Part, Published, Row, Unusable, text
from coding_model_project.data.loaders.cases import call_cases, from_json, lines_call
from coding_model_project.data.loaders.safe_pickle import HostilePickle, decode
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.types import Limits, Problem, Stdin, Test

N_ROWS = (400, 111, 101, 101, 167, 175)
"""Number of rows that each release adds; v6 holds 1,055."""

_DIFFICULTIES = {"easy": 1, "medium": 2, "hard": 3}


def problem(row: Row, _part: Part, _index: int) -> Problem:
    """Convert a row of any release."""
    metadata = from_json(row.get("metadata") or "{}", "metadata")
    function = metadata.get("func_name")
    starter = row.get("starter_code") or ""
    statement = text(row, "question_content")
    if starter.strip():
        statement += f"\n\nStart from this code:\n\n```python\n{starter.rstrip()}\n```\n"
    return Problem(
        id=f"livecodebench/{text(row, 'question_id')}",
        split="test",
        statement=statement,
        tests=(
            *tests(from_json(row["public_test_cases"], "public_test_cases"), function, public=True),
            *tests(_private(row["private_test_cases"]), function),
        ),
        limits=Limits(cpu_s=10.0, wall_s=30.0, memory_mb=1024, output_kb=16_384),
        entry_point=function,
        difficulty=_DIFFICULTIES.get(str(row.get("difficulty")).lower()),
        date=str(row["contest_date"])[:10] if row.get("contest_date") else None,
        tags=(str(row["platform"]),) if row.get("platform") else (),
    )


def tests(cases: Any, function: str | None, *, public: bool = False) -> tuple[Test, ...]:
    """Convert test cases {input, output, testtype} of LiveCodeBench and DeepCoder."""
    if cases and all(case.get("type") == "function_call" for case in cases):
        return call_cases(cases, public=public)
    found = []
    for case in cases:
        kind = case.get("testtype") or case.get("type") or "stdin"
        if kind == "functional":
            name = function or (case.get("metadata") or {}).get("func_name")
            if not name:
                raise Unusable("tests of a function whose name is missing")
            found.append(lines_call(name, case["input"], case["output"], public=public))
        elif kind.startswith("stdin"):
            given, expected = case["input"], case["output"]
            found.append(Test(input=Stdin(given), expected=expected, public=public))
        else:
            raise Unusable(f"tests of unknown type {kind!r}")
    return tuple(found)


def _private(packed: Any) -> Any:
    if not isinstance(packed, str) or packed.lstrip().startswith("["):
        return from_json(packed, "private_test_cases")
    try:
        return from_json(decode(packed), "private_test_cases")
    except HostilePickle as error:
        raise Unusable(f"field 'private_test_cases': {error}") from error


def _part(release: int) -> Part:
    file = f"test{release if release > 1 else ''}.jsonl"
    return Part(
        split="test",
        files=(file, f"code_generation_lite/{file}"),
        n_rows=N_ROWS[release - 1],
        hub_file=file,
    )


def loader(release: int | None = None) -> TableLoader:
    """Return the loader of all rows up to a release; None takes the existing files (on the hub: all)."""
    last = release or len(N_ROWS)
    return TableLoader(
        published=Published(
            name=f"livecodebench_v{release}" if release else "livecodebench",
            licence="see its card: problems belong to the contests' owners",
            fields=(
                "question_content", "question_id", "starter_code",
                "public_test_cases", "private_test_cases", "metadata",
            ),
            optional=("difficulty", "platform", "contest_date"),
            parts=tuple(_part(number) for number in range(1, last + 1)),
            hub="livecodebench/code_generation_lite",
            revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
            whole=release is not None,
            tests="standard input, calls",
        ),
        to_problem=problem,
    )  # fmt: skip
