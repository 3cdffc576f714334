"""Our own battery, at every tier that isolates: no attack gets anything, no honest program fails.

`own.jsonl` is in the format of `sandbox battery`; a hole that is found gets a case there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coding_model_project.grading.battery.battery_cases import read_cases
from coding_model_project.grading.battery.run_cases import run_battery
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import EmbeddedSandbox, tiers

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("battery"), pytest.mark.timeout(300)]

CASES = read_cases(Path(__file__).with_name("own.jsonl"))


@pytest.mark.alone  # it looks for new files in /tmp, where other tests have theirs
@pytest.mark.parametrize("tier", [Tier.namespaces, Tier.seccomp])
async def test_every_case_is_met(tier):
    if problem := tiers.why_not(tier, sys.executable):
        pytest.skip(f"tier {tier} does not work here: {problem}")
    outcomes, identity = await run_battery(CASES, EmbeddedSandbox(workers=1, tier=tier))
    assert [(o.case.id, o.verdict, o.unmet) for o in outcomes if o.unmet] == []
    assert identity.split("/")[1] == tier
    assert len(outcomes) == len(CASES)


def test_it_attacks_in_every_way_and_asks_honest_questions():
    assert sum(case.attack for case in CASES) >= 80
    assert sum(case.control for case in CASES) >= 30
    for mode in ("stdio", "call", "assert"):
        inputs = {"stdio": "Stdin", "call": "Call", "assert": "Asserts"}[mode]
        assert any(type(c.problem.tests[0].input).__name__ == inputs for c in CASES if c.attack)
