"""How many modules a completion passes from verl's reward manager to the sandbox, and back."""

import sys
from types import SimpleNamespace

import pytest

from tests.unit.verl_ext.test_repair_loop import RIGHT, WRONG, batch_of, config, tokenizer

__all__ = ["config", "tokenizer"]

pytestmark = [pytest.mark.verl, pytest.mark.sandbox]

MOST = 12
VALUES = {"coding_model_project.types", "coding_model_project.codec"}
"""Not on the way: what the way is made of."""


async def test_the_way_is_short(config, tokenizer):
    from coding_model_project.verl_ext.rewards.reward_manager import CodeRewardManager

    passed: dict[str, None] = {}
    manager = CodeRewardManager(config("coding.repair.rounds=0"), tokenizer)

    def note(frame, event, argument):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("coding_model_project.") and name not in VALUES:
            passed.setdefault(name)

    async def judged(code):
        response = tokenizer(code)["input_ids"]
        output = SimpleNamespace(prompt_ids=[1], response_ids=response, extra_fields={})
        return await manager.run_single(batch_of(output))

    assert (await judged(RIGHT))["reward_score"] == 1.0  # starts the judge
    sys.setprofile(note)
    try:
        assert (await judged(WRONG))["reward_score"] == 0.0
    finally:
        sys.setprofile(None)
    way = [name for name in passed if ".sandbox." not in name]  # behind `Sandbox.run`
    print("\n".join(way))
    assert len(way) <= MOST
