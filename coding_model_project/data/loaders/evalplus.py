"""HumanEval+ and MBPP+: EvalPlus's inputs for the two benchmarks. Test only.

A row has inputs and a solution, but no outputs: the expected values are those that the solution returns
(`evalplus_expected`). The first tests are the benchmark's own (`Problem.base_tests`). As in EvalPlus, a
program runs on all inputs in one process (`Problem.isolation`), and values compare by its rules
(`grading.value_rules`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coding_model_project.data.governance import isolation_of
from coding_model_project.data.loaders.base import (
    Part,
    Place,
    Row,
    SetAside,
    Trail,
    Unusable,
    number,
    text,
)
from coding_model_project.data.loaders.evalplus_arguments import typed
from coding_model_project.data.loaders.evalplus_expected import NOT_NONE, with_expected
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.types import Call, Limits, Plain, Problem, Test

LIMITS = Limits(cpu_s=10.0, wall_s=30.0, memory_mb=2048, output_kb=16_384)

_COMPARISONS = {
    "HumanEval/32": "evalplus_root",
    "Mbpp/164": "evalplus_any_value",
    "Mbpp/295": "evalplus_or_zero",
    "Mbpp/558": "evalplus_digits",
    "Mbpp/581": "evalplus_pyramid",
    **{f"Mbpp/{n}": "evalplus_set" for n in (2, 7, 111, 140, 232, 249, 579, 769)},
}
"""Comparisons of tasks with several right values; see `grading.value_rules`."""

_NOT_NONE = {"check_str", "text_match_three", "text_starta_endb"}
"""Functions of MBPP+ that may return a match object, which is not plain data, like the author's."""


def with_values(table: TableLoader, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
    """Yield the items of a set with expected values; solutions without cached ones run in the sandbox.

    Raises:
        SandboxError: the sandbox that runs the solutions failed.
    """
    return with_expected(table.published.name, table.items(place, trail), trail)


def humaneval(name: str, row: Row, _part: Part, _index: int) -> Problem:
    """Convert a row of HumanEval+."""
    return _problem(name, row, _inputs(row, "base_input"), _inputs(row, "plus_input"))


def mbpp(name: str, row: Row, _part: Part, _index: int) -> Problem:
    """Convert a row of MBPP+."""
    task, function = text(row, "task_id"), text(row, "entry_point")
    base, plus = (
        typed(task, text(row, "assertion"), function, _inputs(row, side))
        for side in ("base_input", "plus_input")
    )
    return _problem(name, row, base, plus)


def _problem(source: str, row: Row, base: list[list[Plain]], plus: list[list[Plain]]) -> Problem:
    task, function = text(row, "task_id"), text(row, "entry_point")
    prompt = text(row, "prompt")
    comparison = _COMPARISONS.get(task, "evalplus")
    if source == "mbpp_plus" and function in _NOT_NONE:
        comparison = NOT_NONE
    return Problem(
        id=f"{source}/{task.split('/')[-1]}",
        split="test",
        statement=prompt,
        tests=tuple(Test(Call(function, tuple(args))) for args in (*base, *plus)),
        base_tests=len(base),
        isolation=isolation_of(source, "test"),
        limits=LIMITS,
        comparison=comparison,
        atol=number(row, "atol") or 0.0,
        rtol=1e-7,
        entry_point=function,
        gold=(prompt + text(row, "canonical_solution"),),
    )


def _inputs(row: Mapping[str, object], field: str) -> list[list[Plain]]:
    value = row.get(field)
    if value == {}:  # MBPP 793 has no additional inputs
        return []
    if not isinstance(value, list) or not all(isinstance(args, list) for args in value):
        raise Unusable(f"field '{field}' is not a list of lists of arguments")
    return value
