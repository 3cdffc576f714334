"""HumanEval+ and MBPP+: EvalPlus's inputs for the two benchmarks. Test only.

A row has inputs and a solution, but no outputs: the expected values are those that the solution returns
(`evalplus_expected`). The first tests are the benchmark's own (`Problem.base_tests`). As in EvalPlus, a
program runs on all inputs in one process (`Problem.isolation`), and values compare by its rules
(`grading.compare`).
"""

from __future__ import annotations

from coding_model_project.data.loaders.base import Part, Row, Unusable, text
from coding_model_project.data.loaders.evalplus_arguments import typed
from coding_model_project.data.loaders.evalplus_expected import NOT_NONE
from coding_model_project.types import Call, Plain, Test

_COMPARISONS = {
    "HumanEval/32": "evalplus_root",
    "Mbpp/164": "evalplus_any_value",
    "Mbpp/295": "evalplus_or_zero",
    "Mbpp/558": "evalplus_digits",
    "Mbpp/581": "evalplus_pyramid",
    **{f"Mbpp/{n}": "evalplus_set" for n in (2, 7, 111, 140, 232, 249, 579, 769)},
}
"""Comparisons of tasks with several right values; see `grading.compare`."""

_NOT_NONE = {"check_str", "text_match_three", "text_starta_endb"}
"""Functions of MBPP+ that may return a match object, which is not plain data, like the author's."""


def humaneval(row: Row, _part: Part) -> Row:
    """Return a row of HumanEval+ with its tests."""
    return _prepared(row, _inputs(row, "base_input"), _inputs(row, "plus_input"))


def mbpp(row: Row, _part: Part) -> Row:
    """Return a row of MBPP+ with its tests."""
    task, function = text(row, "task_id"), text(row, "entry_point")
    base, plus = (
        typed(task, text(row, "assertion"), function, _inputs(row, side))
        for side in ("base_input", "plus_input")
    )
    prepared = _prepared(row, base, plus)
    return {**prepared, "_comparison": NOT_NONE} if function in _NOT_NONE else prepared


def _prepared(row: Row, base: list[list[Plain]], plus: list[list[Plain]]) -> Row:
    function = text(row, "entry_point")
    return {
        **row,
        "_tests": tuple(
            Test(Call(function, tuple(args)), expected=None) for args in (*base, *plus)
        ),
        "_base_tests": len(base),
        "_comparison": _COMPARISONS.get(text(row, "task_id"), "evalplus"),
        "_rtol": 1e-7,
        "_gold": text(row, "prompt") + text(row, "canonical_solution"),
    }


def _inputs(row: Row, field: str) -> list[list[Plain]]:
    value = row.get(field)
    if value == {}:  # MBPP 793 has no additional inputs
        return []
    if not isinstance(value, list) or not all(isinstance(args, list) for args in value):
        raise Unusable(f"field '{field}' is not a list of lists of arguments")
    return value
