"""A run's gain: paired by problem, from the first validation to the last, outages aside."""

from __future__ import annotations

import json

from coding_model_project.evaluation.gain import FILE, gain, say_gain
from coding_model_project.runs.rollouts import Rollout, RolloutWriter


def rollout(step: int, problem: int, passed: bool, split: str = "validation") -> Rollout:
    return Rollout(
        step=step, attempt=1, split=split, problem=f"mine/{problem}", sample="0", prompt="",
        completion="", tokens=1, reward=float(passed), reward_parts={},
        verdict={"error": None if passed else "wrong_answer"}, generated_at=0.0, graded_at=0.0,
    )  # fmt: skip


def test_the_gain_is_of_the_problems_that_both_validations_judged(tmp_path):
    writer = RolloutWriter(tmp_path)
    writer.write([rollout(0, n, n < 10) for n in range(40)])
    writer.write([rollout(5, n, True, "train") for n in range(40)])
    writer.write([rollout(10, n, n < 30) for n in range(1, 40)])  # an outage took the first
    writer.close()
    lines: list[str] = []
    say_gain(tmp_path, lines.append)
    found = json.loads((tmp_path / FILE).read_text())
    assert (found["before"]["step"], found["after"]["step"]) == (0, 10)
    assert found["test"]["n_problems"] == 39
    assert round(found["test"]["delta"], 6) == round(20 / 39, 6)
    assert found["test"]["p_value"] < 0.001 and found["test"]["low"] > 0
    assert lines[0].startswith("validation on 39 problems: step 0: 23.1% (")


def test_one_validation_is_no_gain(tmp_path):
    writer = RolloutWriter(tmp_path)
    writer.write([rollout(0, 1, True)])
    writer.close()
    assert gain(tmp_path) is None
