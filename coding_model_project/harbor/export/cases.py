"""cases.json of an exported task: everything that its verifier needs to know of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from coding_model_project.codec import from_json, to_json
from coding_model_project.types import (
    Asserts,
    Call,
    Isolation,
    Limits,
    Problem,
    Stdin,
    Test,
)

CPU_GRACE = 2
"""Factor on a problem's CPU time: tasks run on machines where its limits were not measured."""


def cases_of(problem: Problem, budget_s: float) -> dict[str, Any]:
    """Return the content of cases.json.

    Args:
        budget_s: wall seconds for all tests.
    """
    return {
        "limits": asdict(problem.limits),
        "comparison": problem.comparison,
        "tolerance": {"atol": problem.atol, "rtol": problem.rtol},
        "budget_s": budget_s,
        "isolation": problem.isolation,
        "tests": [_case(test) for test in problem.hidden_tests],
    }


def problem_of(cases: Mapping[str, Any]) -> Problem:
    """Return the problem in the content of cases.json.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    limits = cases["limits"]
    return Problem(
        id="exported/1",
        split="train",
        statement="",
        limits=Limits(**{**limits, "cpu_s": limits["cpu_s"] * CPU_GRACE}),
        comparison=cases["comparison"],
        **cases["tolerance"],
        isolation=Isolation(cases["isolation"]),
        tests=tuple(map(_test, cases["tests"])),
    )


def _case(test: Test) -> dict[str, Any]:
    match test.input:
        case Stdin(text):
            return {"stdin": text, "expected": test.expected}
        case Call(function=function, args=args):
            row = {"call": function, "args": [to_json(one) for one in args]}
            return {**row, "expected": to_json(test.expected)}
        case Asserts(source=source, entry_point=entry_point):
            return {"asserts": source, "entry_point": entry_point}


def _test(case: Mapping[str, Any]) -> Test:
    if "stdin" in case:
        return Test(Stdin(case["stdin"]), expected=case["expected"])
    if "call" in case:
        arguments = tuple(map(from_json, case["args"]))
        return Test(Call(case["call"], arguments), expected=from_json(case["expected"]))
    return Test(Asserts(case["asserts"], case["entry_point"]))
