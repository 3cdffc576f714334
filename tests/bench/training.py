"""Seconds of a GRPO step beside TRL's, with the same judge, model, problems and size of a batch.

    python -m tests.bench.training [--model MODEL] [--steps 10] [--side SIDE]...

Without --model, the tiny model and 256 samples; with it, an instruction-tuned model and 64 samples.
Sides: `trl`, `grpo` and `stable` (the recipe with `experiment=stable`, without replaced groups, which
are more samples). One after another, each in processes of its own; medians without the first steps.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model and the shape of a batch, in which each prompt has eight samples."""

    model: Path
    prompts: int
    tokens: int
    """Longest response."""
    at_once: int
    """Sequences per forward pass of TRL."""
    bare: bool
    """The prompt asks for a program without a fence."""
    warm_up: int
    """Steps that are not counted."""
    overrides: tuple[str, ...] = ()


TINY = Workload(
    model=Path("data/tinycode/base"), prompts=32, tokens=96, at_once=64, bare=True, warm_up=2
)


def real(model: Path) -> Workload:
    """Return the workload of an instruction-tuned model."""
    return Workload(
        model=model,
        prompts=8,
        tokens=128,
        at_once=16,
        bare=False,
        warm_up=1,
        overrides=(
            "coding.prompt=fenced",
            "coding.data_dir=data/tinycode_fenced",
            f"actor_rollout_ref.model.path={model}",
            "actor_rollout_ref.actor.optim.lr=1e-6",
            "data.max_prompt_length=128",
            "data.max_response_length=128",
            "data.train_batch_size=8",
            "actor_rollout_ref.actor.ppo_mini_batch_size=8",
            "actor_rollout_ref.rollout.max_model_len=256",
            "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes=1000000000",
        ),
    )


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


def trl(work: Workload, steps: int, folder: Path) -> Side:
    """Train with TRL."""
    path = os.pathsep.join(filter(None, (str(TRL), os.environ.get("PYTHONPATH"), str(ROOT))))
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tests/bench/trl_steps.py"),
            str(work.model),
            str(folder),
            *map(str, (steps, work.prompts, work.tokens, work.at_once)),
            "bare" if work.bare else "fenced",
        ],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"step_s"')]
    return Side(step_s=_median(work, [json.loads(line)["step_s"] for line in lines]), parts={})


def recipe(name: str, work: Workload, steps: int, folder: Path) -> Side:
    """Train with `recipes.grpo`."""
    began = time.time()
    frequencies = ["trainer.save_freq=-1", "trainer.test_freq=-1", "trainer.val_before_train=false"]
    asked = [f"coding.run_dir={folder}", f"trainer.total_training_steps={steps}"]
    command = [sys.executable, "-m", "recipes.grpo", "hardware=cpu", *asked]
    command += [*frequencies, *work.overrides, *_RECIPES[name]]
    subprocess.run(command, stdout=sys.stderr, check=True)
    rows = [json.loads(line)["data"] for line in (folder / "metrics.jsonl").open()]
    rows = [row for row in rows if "timing_s/step" in row]
    return Side(
        step_s=_median(work, [row["timing_s/step"] for row in rows]),
        parts={
            part: _median(work, [row.get(key, 0.0) for row in rows]) for part, key in _PARTS.items()
        },
        first_sample_s=min(sample.generated_at for sample in read_all_rollouts(folder)) - began,
    )


def _median(work: Workload, seconds: list[float]) -> float:
    return statistics.median(seconds[work.warm_up :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--side", action="append", choices=["trl", *_RECIPES])
    parser.add_argument("--model", type=Path)
    given = parser.parse_args()
    work = TINY if given.model is None else real(given.model)
    if not work.model.exists():
        raise SystemExit(f"{work.model}: no model; `python -m recipes.grpo` makes the tiny one")
    found: dict[str, Side] = {}
    for name in given.side or (["trl", *_RECIPES] if work is TINY else ["trl", "grpo"]):
        load = psutil.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / name
            side = (
                trl(work, given.steps, run)
                if name == "trl"
                else recipe(name, work, given.steps, run)
            )
        found[name] = side
        ratio = f"  {side.step_s / found['trl'].step_s:.2f} × trl" if "trl" in found else ""
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in side.parts.items())
        first = f"; first sample after {side.first_sample_s:.0f} s" if side.first_sample_s else ""
        print(
            f"{name:7} {side.step_s:5.1f} s a step{ratio}  {parts}{first} (load before: {load:.1f})",
            flush=True,
        )
    ours, theirs = found.get("grpo"), found.get("trl")
    if ours and theirs:
        figures = {
            "ours_step_s": round(ours.step_s, 2),
            "trl_step_s": round(theirs.step_s, 2),
            "ratio": round(ours.step_s / theirs.step_s, 2),
            "first_step_s": round(ours.first_sample_s or 0.0, 1),
        }
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
