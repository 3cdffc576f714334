"""Reading of an exported task's cases.json, which holds what its verifier needs to know of a problem.

Its tests are those of our own rows (`data.problems`). The verifier carries this reader, and not theirs
with its messages for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coding_model_project.codec import from_json
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


def _test(case: Mapping[str, Any]) -> Test:
    if "stdin" in case:
        return Test(Stdin(case["stdin"]), expected=case["expected"])
    if "call" in case:
        arguments = tuple(map(from_json, case["args"]))
        return Test(Call(case["call"], arguments), expected=from_json(case["expected"]))
    return Test(Asserts(case["asserts"], case["entry_point"]))
