"""`CodeReward` in TRL's own GRPO trainer, and the page that shows it."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests import docs

TRL = Path(sys.prefix) / "opt" / "trl"
"""Apart from the environment: verl takes another path where it can import trl."""
PAGE = docs.ROOT / "docs" / "trl.md"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_grpo_trains_on_what_was_judged_and_leaves_the_rest_out(tmp_path):
    if not TRL.exists():
        pytest.skip(f"trl is not in {TRL}: make setup installs it there")
    script = Path(__file__).parents[1] / "trl_grpo.py"
    shown = [block.text for block in docs.blocks(PAGE) if block.executed]
    (tmp_path / "page.py").write_text("\n".join(shown))
    path = os.pathsep.join(filter(None, (str(TRL), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "results.json").read_text())
    first, second = found["given"]
    steps = [row for row in found["log"] if "reward" in row]
    assert None not in first
    assert 1 <= second.count(None) < len(second) == 8
    for rewards, row in zip((first, second), steps, strict=True):
        judged = [one for one in rewards if one is not None]
        assert all(0 <= one <= 1 for one in judged)
        assert row["reward"] == pytest.approx(statistics.mean(judged))
        assert row["rewards/code_dense/mean"] == pytest.approx(statistics.mean(judged))
        assert row["judge/ungradable"] == pytest.approx(1 - len(judged) / len(rewards))
        assert row["judge/accepted"] == pytest.approx(judged.count(1.0) / len(judged))
        assert math.isfinite(row["loss"])
    assert {1.0} < {one for one in first + second if one is not None}  # some right, some wrong
    assert "[1.0, 0.0]" in done.stdout  # which the page shows
    lost = [advantage for one, advantage in zip(second, found["advantages"][1]) if one is None]  # noqa: B905
    assert set(lost) == {0.0}
    assert any(found["advantages"][1])
    assert found["changed"] and found["finite"]
    line = "1 of 8 samples could not be judged and get no reward; the first: SandboxError: the"
    assert line.removeprefix("1") in done.stderr
