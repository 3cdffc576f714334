"""The demo's phases, each a recipe run as a user would run it, and its summary."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from coding_model_project.errors import UngradableError
from coding_model_project.evaluation.stats import bootstrap_interval, paired_test
from recipes.demo.memory import PeakMemory

DATA = Path("data/tinycode")
OUT = Path("outputs/demo")
SFT_STEPS = 60
ALPHA = 0.01

console = Console()


def main() -> int:
    """Run the phases, print and write the summary; 0 if every gain is significant, else 1."""
    OUT.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    with PeakMemory() as memory:
        sft, continued, policy = _train(seconds)
        models = {"base": DATA / "base", "sft": sft, "sft_continued": continued, "grpo": policy}
        _phase(
            "evaluation",
            seconds,
            ["recipes.demo.evaluate", str(DATA), str(OUT / "evaluation.json")]
            + [f"{name}={path}" for name, path in models.items()],
        )
    summary = summarise(json.loads((OUT / "evaluation.json").read_text()))
    summary["sft_validation_loss"] = _validation_losses()
    summary["seconds"] = {name: round(value, 1) for name, value in seconds.items()}
    summary["peak_memory_gb"] = round(memory.peak_gb, 2)
    _link_model(policy)
    partial = OUT / "summary.partial"
    partial.write_text(json.dumps(summary, indent=2) + "\n")
    partial.replace(OUT / "summary.json")
    _print(summary)
    return 0 if significant(summary) else 1


def _train(seconds: dict[str, float]) -> tuple[Path, Path, Path]:
    """SFT (with its continuation) and GRPO; returns the three models' folders."""
    # One SFT run of twice the steps, exported halfway: "sft" and "sft_continued".
    sft_dir = OUT / "sft"
    _phase(
        "sft",
        seconds,
        [
            "recipes.sft",
            f"coding.run_dir={sft_dir}",
            f"trainer.total_training_steps={2 * SFT_STEPS}",
            f"trainer.save_freq={SFT_STEPS}",
        ],
    )
    sft = sft_dir / "checkpoints" / f"global_step_{SFT_STEPS}" / "huggingface"
    continued = sft_dir / "checkpoints" / f"global_step_{2 * SFT_STEPS}" / "huggingface"
    grpo_dir = OUT / "grpo"
    _phase(
        "grpo",
        seconds,
        [
            "recipes.grpo",
            f"coding.run_dir={grpo_dir}",
            f"actor_rollout_ref.model.path={sft.absolute()}",
        ],
    )
    last = (grpo_dir / "checkpoints" / "latest_checkpointed_iteration.txt").read_text().strip()
    return (
        sft,
        continued,
        grpo_dir / "checkpoints" / f"global_step_{last}" / "actor" / "huggingface",
    )


def _phase(name: str, seconds: dict[str, float], module_and_arguments: list[str]) -> None:
    """Run a module as its own process, timed."""
    console.rule(f"[bold]{name}")
    started = time.monotonic()
    result = subprocess.run([sys.executable, "-m", *module_and_arguments], check=False)
    if result.returncode == 130:
        raise KeyboardInterrupt
    if result.returncode:
        raise UngradableError(f"phase {name} failed with exit code {result.returncode}; see above")
    seconds[name] = time.monotonic() - started


def summarise(evaluation: dict[str, Any]) -> dict[str, Any]:
    """The table's numbers: sampled pass@1 with problem-clustered intervals, and paired tests."""
    rates = {
        name: scores["sampled"]["per_problem"] for name, scores in evaluation["models"].items()
    }
    phases = []
    for name, scores in evaluation["models"].items():
        low, high = bootstrap_interval(rates[name])
        greedy = scores["greedy"]["per_problem"]
        phases.append(
            {
                "name": name,
                "pass_at_1": sum(rates[name]) / len(rates[name]),
                "greedy": sum(greedy) / len(greedy),
                "ci95": [low, high],
                "n_problems": len(rates[name]),
                "errors": scores["sampled"]["errors"],
                "tokens": scores["sampled"]["tokens"] + scores["greedy"]["tokens"],
                "judge_s": scores["sampled"]["judge_s"] + scores["greedy"]["judge_s"],
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


def significant(summary: dict[str, Any]) -> bool:
    """GRPO beats SFT and its continuation, and SFT the base, each with p < 0.01."""
    return all(
        summary[name]["delta"] > 0 and summary[name]["p_value"] < ALPHA
        for name in ("sft_vs_base", "grpo_vs_sft", "grpo_vs_sft_continued")
    )


def _validation_losses() -> dict[str, float]:
    """SFT's validation loss by step: it no longer falls where `sft` was taken."""
    losses = {}
    for line in (OUT / "sft" / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "val/loss" in row["data"]:
            losses[str(row["step"])] = round(row["data"]["val/loss"], 4)
    return losses


def _link_model(policy: Path) -> None:
    link = OUT / "model"
    if link.is_symlink():
        link.unlink()
    link.symlink_to(policy.absolute().relative_to(OUT.absolute()), target_is_directory=True)


def _print(summary: dict[str, Any]) -> None:
    table = Table(title=f"{summary['phases'][0]['n_problems']} held-out problems")
    for column in ("phase", "pass@1 (sampled)", "95% interval", "greedy", "most common error"):
        table.add_column(column)
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
    total = sum(summary["seconds"].values())
    console.print(
        f"{total / 60:.1f} minutes ({summary['seconds']}), "
        f"peak memory {summary['peak_memory_gb']:.1f} GB of "
        f"{psutil.virtual_memory().total / 2**30:.0f}; the policy is in {OUT / 'model'}"
    )
