"""summary.json: the results and costs of a finished run."""

from __future__ import annotations

import time
from typing import Any

from coding_model_project.atomic import write_json
from coding_model_project.runs.folder import Attempt, RunFolder, State
from coding_model_project.runs.metrics_log import read_metrics, total

_TRAINED_TOKENS = ("rollout/trained_tokens", "train/global_tokens")
_LAST = ("judge/accepted", "critic/score/mean", "train/loss", "val/loss")


def write_summary(run: RunFolder) -> None:
    """Write `summary.json` from the run's logs."""
    write_json(run.summary, summarise(run))


def summarise(run: RunFolder) -> dict[str, Any]:
    """Summarise a run so far.

    Returns:
        recipe, steps; seconds: over all attempts; attempts: their number; tokens: generated and trained
        on; judge_s: sandbox wall seconds; last: final values of the main metrics, including all
        validation metrics.
    """
    steps = read_metrics(run.metrics)
    attempts = run.attempts()

    last: dict[str, float] = {}
    for data in steps.values():
        last |= {k: v for k, v in data.items() if k in _LAST or k.startswith("val-core/")}
    return {
        "recipe": run.provenance()["recipe"],
        "steps": max(steps, default=0),
        "attempts": len(attempts),
        "seconds": round(sum(_ended(run, a) - a.started for a in attempts), 1),
        "tokens": {
            "generated": int(total(run.metrics, "rollout/generated_tokens")),
            "trained": int(sum(total(run.metrics, metric) for metric in _TRAINED_TOKENS)),
        },
        "judge_s": round(total(run.metrics, "judge/seconds"), 2),
        "last": last,
    }


def _ended(run: RunFolder, attempt: Attempt) -> float:
    """Return an attempt's end in seconds since the epoch.

    It is now if the attempt runs, and its last write to the log if it was killed.
    """
    if attempt.ended is not None:
        return attempt.ended
    if attempt.state is State.running:
        return time.time()
    files = run.log_dir(attempt.number).iterdir()
    return max(attempt.started, *(file.stat().st_mtime for file in files))
