"""DeepCoder: verified problems of PrimeIntellect, TACO, LiveCodeBench v5 and Codeforces.

Its lcbv5 rows are LiveCodeBench's own. Before training on them, run `data dedup` against the releases
that you evaluate on.
"""

from __future__ import annotations

from collections.abc import Mapping

from coding_model_project.data.loaders.base import Part, Published, Row, text
from coding_model_project.data.loaders.cases import columns, from_json
from coding_model_project.data.loaders.codecontests import refuse_any_answer
from coding_model_project.data.loaders.livecodebench import tests
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.grading.extract import extract
from coding_model_project.types import Limits, Problem

MAX_SOLUTIONS = 5


def problem(row: Row, part: Part, index: int) -> Problem:
    """Convert a row of any configuration."""
    statement = text(row, "problem")
    refuse_any_answer(statement)
    starter = row.get("starter_code")
    if isinstance(starter, str) and starter.strip():
        statement += f"\n\nStart from this code:\n\n```python\n{starter.rstrip()}\n```\n"
    metadata = from_json(row.get("metadata") or {}, "metadata")
    function = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    kept = from_json(row["tests"], "tests")
    found = columns(kept) if isinstance(kept, Mapping) else tests(kept, function)
    config = part.config or "any"
    return Problem(
        id=f"deepcoder/{config}/{part.split}/{index}",
        split=part.split or "train",
        statement=statement,
        tests=found,
        limits=Limits(cpu_s=10.0, wall_s=30.0, output_kb=16_384),
        entry_point=function,
        tags=(config,),
        gold=_solutions(row),
    )


def _solutions(row: Row) -> tuple[str, ...]:
    given = from_json(row.get("solutions") or [], "solutions")
    given = [given] if isinstance(given, str) else given
    codes = (extract(one, bare=True).code for one in given if isinstance(one, str))
    return tuple(dict.fromkeys(code for code in codes if code))[:MAX_SOLUTIONS]


def _part(config: str, split: str) -> Part:
    return Part(
        split=split,
        files=(f"{config}/{split}-*.parquet", f"deepcoder_{config}_{split}.jsonl"),
        config=config,
    )


LOADER = TableLoader(
    published=Published(
        name="deepcoder",
        licence="MIT",
        fields=("problem", "tests"),
        optional=("starter_code", "metadata", "solutions"),
        parts=(
            _part("primeintellect", "train"),
            _part("taco", "train"),
            _part("lcbv5", "train"),
            _part("codeforces", "test"),
            _part("lcbv5", "test"),
        ),
        hub="agentica-org/DeepCoder-Preview-Dataset",
        whole=False,
        tests="standard input, calls",
    ),
    to_problem=problem,
)
