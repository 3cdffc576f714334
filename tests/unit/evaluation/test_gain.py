"""A run's gain: paired by problem, from the first validation to the last, outages aside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coding_model_project.evaluation.comparison import GAIN, gain, say_gain
from coding_model_project.runs.rollouts import Rollout, RolloutWriter
from tests.synthetic_runs import rollout, write_run


def validated(step: int, problem: int, passed: bool, split: str = "validation") -> Rollout:
    return Rollout(
        step=step, attempt=1, split=split, problem=f"mine/{problem}", sample="0", prompt="",
        completion="", tokens=1, reward=float(passed), reward_parts={},
        verdict={"error": None if passed else "wrong_answer"}, generated_at=0.0, graded_at=0.0,
    )  # fmt: skip


def test_the_gain_is_of_the_problems_that_both_validations_judged(tmp_path):
    writer = RolloutWriter(tmp_path)
    writer.write([validated(0, n, n < 10) for n in range(40)])
    writer.write([validated(5, n, True, "train") for n in range(40)])
    writer.write([validated(10, n, n < 30) for n in range(1, 40)])  # an outage took the first
    writer.close()
    lines: list[str] = []
    say_gain(tmp_path, lines.append)
    found = json.loads((tmp_path / GAIN).read_text())
    assert (found["before"]["step"], found["after"]["step"]) == (0, 10)
    assert found["test"]["n_problems"] == 39
    assert round(found["test"]["delta"], 6) == round(20 / 39, 6)
    assert found["test"]["p_value"] < 0.001 and found["test"]["low"] > 0
    assert lines[0].startswith("validation on 39 problems: step 0: 23.1% (")


def test_one_validation_is_no_gain(tmp_path):
    writer = RolloutWriter(tmp_path)
    writer.write([validated(0, 1, True)])
    writer.close()
    assert gain(tmp_path) is None


SCRIPT = Path(__file__).parents[3] / "src" / "harbor_gains.py"


def run(folder: Path, seed: int, solved_before: int, solved_after: int, **more) -> None:
    failed = {"error": "wrong_answer"}
    rows = [
        rollout(step=step, split="validation", problem=f"p/{n}", verdict={} if n < k else failed)
        for step, k in ((0, solved_before), (10, solved_after))
        for n in range(40)
    ]
    write_run(folder / f"seed_{seed}", recipe="harbor", rollouts=rows, seed=seed, **more)


@pytest.mark.slow
def test_gains_over_seeds_replace_what_was_below_the_heading(tmp_path):
    for seed, after in ((1, 20), (2, 24), (3, 28)):
        run(tmp_path / "block", seed, 10, after)
    run(tmp_path / "block", 4, 10, 40, exit_code=None)
    page = tmp_path / "page.md"
    page.write_text("# Claim\n\nSettled.\n\n## Result\n\nold\n")
    command = [sys.executable, SCRIPT, page, f"block={tmp_path}/block", f"tools={tmp_path}/no"]
    subprocess.run(command, check=True)
    text = page.read_text()
    assert text.startswith("# Claim\n\nSettled.\n\n## Result\n") and "old" not in text
    assert "| 2 | 25.0% | 60.0% | +35.0% (" in text
    assert "Over 3 seeds: +35.0% ± 10.0%, 95% interval over seeds and problems +" in text
    assert "`seed_4` has not finished" in text and "### `tools`\n\nNot run yet." in text
    subprocess.run(command, check=True)
    assert page.read_text() == text
    assert (
        subprocess.run([sys.executable, SCRIPT], check=False, capture_output=True).returncode == 2
    )
