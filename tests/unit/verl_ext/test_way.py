"""The number of modules between verl's reward manager and the sandbox."""

import sys
from types import SimpleNamespace

import pytest

from tests.unit.verl_ext.test_repair_loop import CRASHES, RIGHT, WRONG, batch_of, config, tokenizer

__all__ = ["config", "tokenizer"]

pytestmark = [pytest.mark.verl, pytest.mark.sandbox]

MOST = 12


def modules(frame):
    """Return the names of the modules of a frame and of its callers."""
    while frame is not None:
        yield frame.f_globals.get("__name__", "")
        frame = frame.f_back


async def test_the_way_is_short(config, tokenizer):
    from coding_model_project.verl_ext.rewards.reward_manager import CodeRewardManager

    passed: dict[str, None] = {}
    manager = CodeRewardManager(config("coding.repair.rounds=0"), tokenizer)

    def note(frame, event, argument):
        names = list(modules(frame))
        behind = any(".sandbox." in name for name in names)  # called by `Sandbox.run`
        if event == "call" and names[0].startswith("coding_model_project.") and not behind:
            passed.setdefault(names[0])

    async def judged(code):
        response = tokenizer(code)["input_ids"]
        output = SimpleNamespace(prompt_ids=[1], response_ids=response, extra_fields={})
        return await manager.run_single(batch_of(output))

    # Start the judge and load the problem first, for hidden and for public tests.
    assert (await judged(RIGHT))["reward_score"] == 1.0
    assert (await judged(CRASHES))["reward_score"] == 0.0
    sys.setprofile(note)
    try:
        assert (await judged(WRONG))["reward_score"] == 0.0
    finally:
        sys.setprofile(None)
    print("\n".join(passed))
    assert len(passed) <= MOST
