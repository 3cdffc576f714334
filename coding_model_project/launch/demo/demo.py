"""The demo's phases, each a command a user could run, and its summary."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
from rich.table import Table

from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.evaluation.results import METRICS, read_evaluation
from coding_model_project.evaluation.statistics.intervals import paired_test
from coding_model_project.isolation.processes import start_sentinel
from coding_model_project.launch.commands import console, logged_series, run, timed, train
from coding_model_project.launch.demo.demo_evaluation import DATASET
from coding_model_project.launch.memory import PeakMemory
from coding_model_project.types import Problem

DATA = Path("data/tinycode")
OUT = Path("outputs/demo")
N_PROBLEMS = 200
SFT_STEPS = 40
GRPO_STEPS = 24
ALPHA = 0.01
Document = dict[str, Any]
"""The content of summary.json."""


def main() -> int:
    """Run the phases, print and write the summary; 0 if every gain is significant, else 1."""
    OUT.mkdir(parents=True, exist_ok=True)
    start_sentinel()
    seconds: dict[str, float] = {}
    with PeakMemory() as memory:
        with timed("data and base model", seconds):
            run(["coding_model_project", "data", "prepare", "tinycode", "--base-model"])
        sft, continued, policy = _train(seconds)
        models = {"base": DATA / "base", "sft": sft, "sft_continued": continued, "grpo": policy}
        with timed("evaluation", seconds):
            problems = read_problems(DATA / "problems.jsonl")
            held_out = [problem for problem in problems if problem.split == "test"][:N_PROBLEMS]
            write_problems(OUT / "held_out.jsonl", held_out)
            named = [f"{name}={path}" for name, path in models.items()]
            module = "coding_model_project.launch.demo.demo_evaluation"
            run([module, str(OUT / "held_out.jsonl"), str(OUT / "evaluation"), *named])
    rates = {name: sampled_rates(OUT / "evaluation", name, held_out) for name in models}
    summary = summarise(OUT / "evaluation", rates)
    summary["solve_rate_by_level"] = by_level(rates, held_out)
    summary["sft_validation_loss"] = dict(logged_series(OUT / "sft", "val/loss"))
    summary["tokens"] = token_proof()
    summary["grpo_step_s"] = step_split()
    summary["seconds"] = {name: round(value, 1) for name, value in seconds.items()}
    summary["peak_memory_gb"] = round(memory.peak_gb, 2)
    _link_model(policy)
    runs = [str(OUT / "sft"), str(OUT / "grpo")]
    run(["coding_model_project", "report", *runs, "--out", str(OUT / "report.html")])
    partial = OUT / "summary.partial"
    partial.write_text(json.dumps(summary, indent=2) + "\n")
    partial.replace(OUT / "summary.json")
    _print(summary)
    return 0 if significant(summary) else 1


def _train(seconds: dict[str, float]) -> tuple[Path, Path, Path]:
    """SFT (with its continuation) and GRPO; returns the three models' folders."""
    # One SFT run of twice the steps, exported halfway: "sft" and "sft_continued".
    with timed("sft", seconds):
        _recipe("sft", 2 * SFT_STEPS, "train/loss", [f"trainer.save_freq={SFT_STEPS}"])
    checkpoints = OUT / "sft" / "checkpoints"
    sft = checkpoints / f"global_step_{SFT_STEPS}" / "huggingface"
    continued = checkpoints / f"global_step_{2 * SFT_STEPS}" / "huggingface"
    with timed("grpo", seconds):
        start = f"actor_rollout_ref.model.path={sft.absolute()}"
        _recipe("grpo", GRPO_STEPS, "judge/accepted", [start])
    last = OUT / "grpo" / "checkpoints" / f"global_step_{GRPO_STEPS}"
    return sft, continued, last / "actor" / "huggingface"


def _recipe(name: str, steps: int, shown: str, overrides: Sequence[str]) -> None:
    command = [f"recipes.{name}", f"trainer.total_training_steps={steps}", *overrides]
    train(command, OUT / name, steps=steps, shown=shown)


def token_proof() -> dict[str, int]:
    """How many tokens GRPO trained on, and how many vLLM's own counters say it generated for that."""
    return {
        "trained": int(
            sum(value for _, value in logged_series(OUT / "grpo", "rollout/trained_tokens"))
        ),
        "generated_by_vllm": int(
            sum(value for _, value in logged_series(OUT / "grpo", "rollout/generated_tokens"))
        ),
    }


STEP_PARTS = {
    "generation": "timing_s/gen",
    "of which waiting for rewards": "judge/wait_s",
    "log-probs": "timing_s/old_log_prob",
    "update": "timing_s/update_actor",
    "weight sync": "timing_s/update_weights",
    "checkpoint": "timing_s/save_checkpoint",
    "whole step": "timing_s/step",
}


def step_split() -> dict[str, float]:
    """Where GRPO's time went: mean seconds per step."""
    sums = {
        part: sum(v for _, v in logged_series(OUT / "grpo", key))
        for part, key in STEP_PARTS.items()
    }
    n_steps = len(logged_series(OUT / "grpo", "timing_s/step"))
    return {part: round(total / n_steps, 3) for part, total in sums.items()}


def sampled_rates(evaluation: Path, model: str, problems: Sequence[Problem]) -> list[float]:
    """Each problem's share of accepted samples, in the problems' order."""
    groups = read_evaluation(evaluation / "sampled" / model).by_problem(DATASET)
    return [fmean(result.passed is True for result in groups[problem.id]) for problem in problems]


def summarise(evaluation: Path, rates: Mapping[str, Sequence[float]]) -> Document:
    """The table's numbers: sampled pass@1 with problem-clustered intervals, and paired tests.

    Args:
        evaluation: the folder that `demo_evaluation` left.
        rates: of each model, as `sampled_rates` gives them.
    """
    phases = []
    for name in rates:
        greedy, sampled = (
            json.loads((evaluation / protocol / name / METRICS).read_text())[DATASET]
            for protocol in ("greedy", "sampled")
        )
        pass_at_1 = sampled["pass@k"]["1"]
        shares = {"accepted": sampled["accepted"], **sampled["errors"]}
        phases.append(
            {
                "name": name,
                "pass_at_1": pass_at_1["value"],
                "greedy": greedy["accepted"],
                "ci95": [pass_at_1["low"], pass_at_1["high"]],
                "n_problems": sampled["problems"],
                "errors": {error: share for error, share in shares.items() if share},
                "tokens": int(greedy["tokens"]["total"] + sampled["tokens"]["total"]),
                "judge_s": greedy["judge_s"]["total"] + sampled["judge_s"]["total"],
            }
        )
    comparisons = {
        f"{a}_vs_{b}": paired_test(rates[a], rates[b])
        for a, b in (("sft", "base"), ("grpo", "sft"), ("grpo", "sft_continued"))
    }
    return {
        "phases": phases,
        **{
            name: {"delta": test.delta, "p_value": test.p_value}
            for name, test in comparisons.items()
        },
    }


def by_level(
    rates: Mapping[str, Sequence[float]], problems: Sequence[Problem]
) -> dict[str, dict[int, float]]:
    """Sampled pass@1 by the tasks' difficulty level: higher levels are to be harder."""
    levels = [problem.difficulty or 0 for problem in problems]
    return {
        name: {
            level: fmean(rate for rate, of in zip(found, levels, strict=True) if of == level)
            for level in sorted(set(levels))
        }
        for name, found in rates.items()
    }


def significant(summary: Document) -> bool:
    """GRPO beats SFT and its continuation, and SFT the base, each with p < 0.01."""
    return all(
        summary[name]["delta"] > 0 and summary[name]["p_value"] < ALPHA
        for name in ("sft_vs_base", "grpo_vs_sft", "grpo_vs_sft_continued")
    )


def _link_model(policy: Path) -> None:
    link = OUT / "model"
    if link.is_symlink():
        link.unlink()
    link.symlink_to(policy.absolute().relative_to(OUT.absolute()), target_is_directory=True)


def _print(summary: Document) -> None:
    table = Table(title=f"{summary['phases'][0]['n_problems']} held-out problems")
    for column in ("phase", "pass@1", "95% interval", "greedy", "main error"):
        table.add_column(column, no_wrap=True)
    for phase in summary["phases"]:
        wrong = {name: share for name, share in phase["errors"].items() if name != "accepted"}
        worst = max(wrong, key=lambda name: wrong[name]) if wrong else None
        low, high = phase["ci95"]
        table.add_row(
            phase["name"],
            f"{phase['pass_at_1']:.1%}",
            f"{low:.1%} – {high:.1%}",
            f"{phase['greedy']:.1%}",
            f"{worst} {wrong[worst]:.1%}" if worst else "none",
        )
    console.print(table)
    for name in ("sft_vs_base", "grpo_vs_sft", "grpo_vs_sft_continued"):
        test = summary[name]
        label = re.sub("_vs_", " against ", name)
        console.print(
            f"{label}: {test['delta']:+.1%}, p = {test['p_value']:.2g} (paired by problem)"
        )
    for name, rates in summary["solve_rate_by_level"].items():
        levels = ", ".join(f"{level}: {rate:.0%}" for level, rate in rates.items())
        console.print(f"{name} by difficulty level: {levels}")
    losses = ", ".join(
        f"{step}: {loss:.3f}" for step, loss in summary["sft_validation_loss"].items()
    )
    console.print(f"SFT validation loss by step (sft is step {SFT_STEPS}): {losses}")
    split = ", ".join(f"{part} {seconds:.2f}" for part, seconds in summary["grpo_step_s"].items())
    console.print(f"seconds per GRPO step: {split}")
    tokens = summary["tokens"]
    console.print(
        f"GRPO trained on {tokens['trained']:,} tokens; vLLM's own counters say it generated "
        f"{tokens['generated_by_vllm']:,}"
    )
    total = sum(summary["seconds"].values())
    console.print(
        f"{total / 60:.1f} minutes ({summary['seconds']}), "
        f"peak memory {summary['peak_memory_gb']:.1f} GB of "
        f"{psutil.virtual_memory().total / 2**30:.0f}; the policy is in {OUT / 'model'}, the runs in "
        f"{OUT / 'report.html'}"
    )
