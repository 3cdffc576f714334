"""Our own battery, at every tier that isolates: no attack gets anything, no honest program fails.

`own.jsonl` is in the format of `sandbox battery`; a hole that is found gets a case there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from coding_model_project.grading.battery.battery_cases import read_cases
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import supervisor
from tests.sandbox_battery import battery

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("battery"), pytest.mark.timeout(300)]

OWN = Path(__file__).with_name("own.jsonl")
CASES = read_cases(OWN)


@pytest.mark.parametrize("tier", [Tier.namespaces, Tier.seccomp])
def test_every_case_is_met(tier):
    if problem := supervisor.why_not(tier, sys.executable):
        pytest.skip(f"tier {tier} does not work here: {problem}")
    code, lines = battery(OWN, "--tier", tier)
    *unmet, last = lines
    assert (code, unmet) == (0, [])
    found = json.loads(last)
    assert (found["tier"], found["passed"]) == (tier, len(CASES))


def test_it_attacks_in_every_way_and_asks_honest_questions():
    assert sum(case.attack for case in CASES) >= 80
    assert sum(case.control for case in CASES) >= 30
    for mode in ("stdio", "call", "assert"):
        inputs = {"stdio": "Stdin", "call": "Call", "assert": "Asserts"}[mode]
        assert any(type(c.problem.tests[0].input).__name__ == inputs for c in CASES if c.attack)
