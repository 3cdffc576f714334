"""IFEval, IFBench and training sets of the same form: prompts with verifiable instructions.

IFEval: Zhou et al. 2023 (arXiv 2311.07911). IFBench, and training prompts with up to five constraints:
Pyatkin et al. 2025 (arXiv 2507.02833).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from coding_model_project import strict_json
from coding_model_project.data.loaders.base import Part, Published, Row, Unusable, text
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.errors import DataError
from coding_model_project.types import Instruction, Problem


def instructions(kinds: Iterable[Any], arguments: Iterable[Any]) -> tuple[Instruction, ...]:
    """Convert the two columns of a row; null arguments belong to other kinds.

    Raises:
        Unusable: a kind is unknown, or its arguments do not fit.
    """
    from coding_model_project.grading.instructions import check_arguments

    found = []
    for kind, given in zip(kinds, arguments, strict=True):
        own = {name: one for name, one in (given or {}).items() if one is not None}
        try:
            check_arguments(str(kind), own)
        except DataError as error:
            raise Unusable(str(error)) from error
        found.append(Instruction(str(kind), own))
    if not found:
        raise Unusable("no instructions")
    return tuple(found)


def _evaluated(row: Row, part: Part, index: int) -> Problem:
    return Problem(
        id=f"{part.config}/{row['key']}",
        split="test",
        statement=text(row, "prompt"),
        tests=(),
        instructions=instructions(row["instruction_id_list"], row["kwargs"]),
        language="text",
    )


def _trained(row: Row, part: Part, index: int) -> Problem:
    """Convert a row whose ground truth is text: a list of one object {instruction_id, kwargs}."""
    prompts = [turn["content"] for turn in row["messages"] if turn["role"] == "user"]
    if len(prompts) != 1 or len(row["messages"]) != 1:
        raise Unusable("a conversation of several turns")
    truth = _read(row["ground_truth"])
    return Problem(
        id=f"if_multi/{row.get('key', index)}",
        split="train",
        statement=str(prompts[0]),
        tests=(),
        instructions=instructions(truth["instruction_id"], truth["kwargs"]),
        language="text",
    )


def _read(ground_truth: Any) -> Mapping[str, Any]:
    """Parse a ground truth, which is published as JSON or as a Python literal."""
    if isinstance(ground_truth, str):
        try:
            ground_truth = strict_json.loads(ground_truth)
        except ValueError:
            ground_truth = ast.literal_eval(ground_truth)
    return ground_truth[0] if isinstance(ground_truth, list) else ground_truth


def _evaluation(
    name: str, hub: str, licence: str, n_rows: int, files: tuple[str, ...]
) -> TableLoader:
    return TableLoader(
        published=Published(
            name=name,
            licence=licence,
            fields=("key", "prompt", "instruction_id_list", "kwargs"),
            parts=(Part(split="test", files=files, n_rows=n_rows, config=name, hub_split="train"),),
            hub=hub,
            tests="instructions",
        ),
        to_problem=_evaluated,
    )


IFEVAL = _evaluation(
    "ifeval",
    "google/IFEval",
    "Apache-2.0",
    541,
    ("ifeval_input_data.jsonl", "ifeval/input_data.jsonl", "IFEval/ifeval_input_data.jsonl"),
)
IFBENCH = _evaluation(
    "ifbench",
    "allenai/IFBench_test",
    "ODC-BY-1.0",
    300,
    ("IFBench_test.jsonl", "ifbench/IFBench_test.jsonl", "IFBench_test/data/train-*.parquet"),
)
_MULTI = "IF_multi_constraints_upto5"
IF_MULTI = TableLoader(
    published=Published(
        name="if_multi",
        licence="ODC-BY-1.0",
        fields=("messages", "ground_truth"),
        optional=("key", "dataset", "constraint_type", "constraint"),
        parts=(
            Part(
                split="train",
                files=(f"{_MULTI}/data/train-*.parquet", "if_multi.jsonl"),
            ),
        ),
        hub=f"allenai/{_MULTI}",
        tests="instructions",
    ),
    to_problem=_trained,
)
