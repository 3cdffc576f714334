"""A page of gains over seeds: every finished run is in it, and one that is not is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.synthetic_runs import rollout, write_run

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
