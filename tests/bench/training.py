"""Seconds of a GRPO step beside TRL's, with the same judge, model, problems and batch of 256 samples.

    python -m tests.bench.training [--steps 10] [--side SIDE]...

Sides: `trl`, `grpo` and `stable` (the recipe with `experiment=stable`, without replaced groups, which
are more samples). One after another, each in processes of its own; medians without the first two steps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from coding_model_project.runs.rollouts import read_all_rollouts

ROOT = Path(__file__).parents[2]
TRL = Path(sys.prefix) / "opt" / "trl"
MODEL = Path("data/tinycode/base")
WARM_UP = 2

_PARTS = {
    "generation": "timing_s/gen",
    "of which rewards": "judge/wait_s",
    "log-probs": "timing_s/old_log_prob",
    "update": "timing_s/update_actor",
}
_RECIPES = {"grpo": [], "stable": ["experiment=stable", "algorithm.filter_groups.enable=false"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Measurements of one side."""

    step_s: float
    """Median seconds of a step."""
    parts: Mapping[str, float]
    first_sample_s: float | None = None
    """Seconds from the command to the end of the first response."""


def trl(steps: int, folder: Path) -> Side:
    """Train with TRL."""
    path = os.pathsep.join(filter(None, (str(TRL), os.environ.get("PYTHONPATH"), str(ROOT))))
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tests/bench/trl_steps.py"),
            str(MODEL),
            str(folder),
            str(steps),
        ],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"step_s"')]
    return Side(step_s=_median([json.loads(line)["step_s"] for line in lines]), parts={})


def recipe(name: str, steps: int, folder: Path) -> Side:
    """Train with `recipes.grpo`."""
    began = time.time()
    frequencies = ["trainer.save_freq=-1", "trainer.test_freq=-1", "trainer.val_before_train=false"]
    asked = [f"coding.run_dir={folder}", f"trainer.total_training_steps={steps}"]
    command = [sys.executable, "-m", "recipes.grpo", "hardware=cpu", *asked, *frequencies]
    subprocess.run([*command, *_RECIPES[name]], stdout=sys.stderr, check=True)
    rows = [json.loads(line)["data"] for line in (folder / "metrics.jsonl").open()]
    rows = [row for row in rows if "timing_s/step" in row]
    return Side(
        step_s=_median([row["timing_s/step"] for row in rows]),
        parts={part: _median([row[key] for row in rows]) for part, key in _PARTS.items()},
        first_sample_s=min(sample.generated_at for sample in read_all_rollouts(folder)) - began,
    )


def _median(seconds: list[float]) -> float:
    return statistics.median(seconds[WARM_UP:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--side", action="append", choices=["trl", *_RECIPES])
    given = parser.parse_args()
    if not MODEL.exists():
        raise SystemExit(f"{MODEL}: no model; `python -m recipes.grpo` makes it")
    found: dict[str, Side] = {}
    for name in given.side or ["trl", *_RECIPES]:
        load = psutil.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / name
            side = trl(given.steps, run) if name == "trl" else recipe(name, given.steps, run)
        found[name] = side
        ratio = f"  {side.step_s / found['trl'].step_s:.2f} × trl" if "trl" in found else ""
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in side.parts.items())
        first = f"; first sample after {side.first_sample_s:.0f} s" if side.first_sample_s else ""
        print(
            f"{name:7} {side.step_s:5.1f} s a step{ratio}  {parts}{first} (load before: {load:.1f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
