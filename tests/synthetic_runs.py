"""Run folders as training leaves them, made up: a policy that gets better, judged on toy problems."""

import copy
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from tests.tables import tables

STARTED = 1_795_270_000.0

_ERRORS = ("wrong_answer", "runtime_error", "syntax_error", "timeout", "no_code")
_WEIGHTS = (8, 4, 3, 1, 1)
_MADE = tables("runs")


def rollout(**changes: Any) -> dict[str, Any]:
    """One line of rollouts.jsonl: an accepted sample, but for the changes."""
    verdict = _MADE["verdict"] | changes.pop("verdict", {})
    return copy.deepcopy(_MADE["rollout"]) | changes | {"verdict": verdict}


def write_run(
    folder: Path,
    *,
    recipe: str = "grpo",
    rollouts: Iterable[Mapping[str, Any]] = (),
    metrics: Mapping[int, Mapping[str, float]] | None = None,
    exit_code: int | None = 0,
    seed: int = 1,
) -> Path:
    """Write a run's folder; a file whose content is empty is not made."""
    attempt = folder / "logs" / "attempt_1"
    attempt.mkdir(parents=True)
    origin = _MADE["origin"] | {
        "recipe": recipe,
        "command": ["python", "-m", f"recipes.{recipe}", f"coding.seed={seed}"],
        "git": {"commit": "8d0c33f" + "0" * 33, "branch": "main", "dirty": seed % 2 == 0},
        "seeds": {"coding.seed": seed, "data.seed": seed, "actor_rollout_ref.rollout.seed": 42},
    }
    (folder / "run.json").write_text(json.dumps(origin))
    ended = None if exit_code is None else STARTED + 5025
    about = {"pid": 1, "pid_ticks": 0, "host": "trainer-3", "machine": "?", "started": STARTED}
    (attempt / "attempt.json").write_text(
        json.dumps(about | {"ended": ended, "exit_code": exit_code})
    )
    if metrics:
        rows = (json.dumps({"step": step, "data": data}) for step, data in metrics.items())
        (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    lines = b"".join(orjson.dumps(row) + b"\n" for row in rollouts)
    if lines:
        (folder / "rollouts.jsonl").write_bytes(lines)
    return folder


def training(
    *,
    n_steps: int,
    n_problems: int = 16,
    n_samples: int = 8,
    pool: int = 80,
    seed: int = 1,
    gain: float = 0.5,
    padding: int = 0,
) -> list[dict[str, Any]]:
    """Rollouts of a training that goes around `pool` problems and validates every fifth step.

    Args:
        gain: how much the accepted rate rises over the training.
        padding: characters of comment per completion, all different.
    """
    rng = random.Random(seed)
    rows = []
    for step in range(n_steps + 1):
        skill = 0.2 + gain * step / max(1, n_steps)
        plan = []
        if step:
            first = (step - 1) * n_problems
            plan += [("train", (first + n) % pool, n_samples) for n in range(n_problems)]
        if step % 5 == 0:
            plan += [("validation", pool + n, 1) for n in range(n_problems)]
        for split, number, n in plan:
            ease = skill + 0.3 * ((number * 7919 % 100) / 100 - 0.5)
            rows += [_sample(rng, step, split, number, k, ease, padding) for k in range(n)]
    return rows


def training_metrics(rollouts: Iterable[Mapping[str, Any]], seed: int = 1) -> dict[int, dict]:
    """Return the metrics that the loggers would write for those rollouts, with step times."""
    rng = random.Random(seed)
    by_step: dict[int, dict[str, list]] = {}
    for row in rollouts:
        by_step.setdefault(row["step"], {}).setdefault(row["split"], []).append(row)
    metrics: dict[int, dict] = {}
    for step, splits in by_step.items():
        metrics[step] = data = {}
        if train := splits.get("train"):
            data.update(_step_metrics(train, rng))
        if validation := splits.get("validation"):
            accepted = [row["verdict"]["error"] is None for row in validation]
            data["val-core/tinycode/acc/mean@1"] = sum(accepted) / len(accepted)
            data["val-aux/judge/infra_rate"] = 0.0
            data["timing_s/testing"] = 3 + rng.random()
    return metrics


def _step_metrics(rows: list[Mapping[str, Any]], rng: random.Random) -> dict[str, float]:
    errors = [row["verdict"]["error"] for row in rows]
    generation, save = 6 + 3 * rng.random(), 1.5 if rows[0]["step"] % 6 == 0 else 0.0
    times = {"gen": generation, "old_log_prob": 2.1, "adv": 0.1, "update_actor": 4.2}
    times |= {"update_weights": 0.05} | ({"save_checkpoint": save} if save else {})
    return {
        "judge/accepted": errors.count(None) / len(rows),
        **{f"judge/{error}": errors.count(error) / len(rows) for error in _ERRORS},
        "judge/infra_rate": 0.02 if rng.random() < 0.1 else 0.0,
        "judge/seconds": sum(row["verdict"]["judge_s"] for row in rows),
        "judge/wait_s": 2 * rng.random(),
        "rollout/generated_tokens": sum(row["tokens"] for row in rows),
        **{f"timing_s/{name}": seconds for name, seconds in times.items()},
        "timing_s/step": sum(times.values()) + 0.2,
    }


def _sample(
    rng: random.Random, step: int, split: str, number: int, k: int, ease: float, padding: int
) -> dict[str, Any]:
    error = None if rng.random() < ease else rng.choices(_ERRORS, _WEIGHTS)[0]
    passed = 8 if error is None else rng.randrange(8)
    body = _MADE["bodies"].get(error or "", "").format(k=number % 10)
    code = f"def f(values):\n{body}\n" if body else ""
    if padding:
        code += "# " + "".join(rng.choices("abcdefgh ", k=padding)) + "\n"
    return rollout(
        step=step,
        split=split,
        problem=f"tinycode/{number}",
        sample=f"{step}_{number}_{k}",
        prompt=f"Write f(values): the sum of the values above {number % 10}. Task {number}.",
        completion=code,
        tokens=rng.randrange(18, 60) + step // 4,
        reward=0.9 * passed / 8 + 0.1 * (error != "syntax_error"),
        reward_parts={"pass_fraction": 0.9 * passed / 8, "parses": 0.1 * (error != "syntax_error")},
        verdict={
            "error": error,
            "passed": passed,
            "failed_test": None if error in (None, "no_code") else passed,
            "detail": _MADE["details"].get(error or "", ""),
            "public_passed": error is None or rng.random() < 0.15,
            "judge_s": round(0.02 + 0.02 * rng.random(), 4),
            "cached": rng.random() < 0.3,
        },
    )
