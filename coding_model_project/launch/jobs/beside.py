"""A training with the evaluation of its checkpoints beside it, in one job.

    python -m coding_model_project.launch.jobs.beside --gpus N [--arguments='…'] -- recipes.NAME key=value

The last N visible GPUs evaluate, one checkpoint at a time on each; the others train. When the training
has finished, the remaining checkpoints are evaluated before the job ends. After a stop, the next attempt
evaluates them. The exit code is the training's; if that is 0, the last evaluation's.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from coding_model_project.errors import INTERRUPTED, CodingModelError, ConfigError
from coding_model_project.isolation.child import await_end, start_child
from coding_model_project.launch.device import count_gpus
from coding_model_project.launch.jobs.base import value_of

OUT = "watch"
"""Name of the evaluations' folder inside the run's folder."""
_EVERY_S = 5
_GRACE_S = 30.0


def main(arguments: Sequence[str]) -> int:
    """Run both; return the exit code."""
    parser = argparse.ArgumentParser(prog="beside")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--arguments", default="")
    parser.add_argument("recipe", nargs="+")
    given = parser.parse_args(arguments)
    run_dir = value_of(given.recipe, "coding.run_dir")
    if run_dir is None:
        raise ConfigError("coding.run_dir=: not set; the evaluation must know the run's folder")
    training_gpus, evaluation_gpus = split(_visible(), given.gpus)
    watch = [sys.executable, "-m", "coding_model_project", "watch", run_dir]
    watch += ["--out", f"{run_dir}/{OUT}", "--every", str(_EVERY_S)]
    watch += [f"--arguments={given.arguments}"] if given.arguments else []
    watch += ["--devices", ",".join(evaluation_gpus)] if evaluation_gpus else []

    environment = dict(os.environ)
    if evaluation_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(training_gpus)
    training = start_child([sys.executable, "-m", *given.recipe], environment=environment)
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        training.send_signal(signal.SIGTERM)

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, stop)
    watching = start_child(watch)
    code = training.wait()
    watching.send_signal(signal.SIGINT)
    await_end(watching, _GRACE_S)
    has_checkpoints = any(Path(run_dir, "checkpoints").glob("global_step_*"))
    if code == 0 and stopped:  # after the last step: the next attempt evaluates what is left
        return INTERRUPTED
    if code == 0 and has_checkpoints:
        late = start_child([*watch, "--once"])
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: late.send_signal(signal.SIGINT))
        return late.wait()
    return code


def split(gpus: Sequence[str], evaluation: int) -> tuple[list[str], list[str]]:
    """Divide GPUs between training and evaluation.

    Raises:
        ConfigError: no GPU would be left for training.
    """
    if evaluation and evaluation >= len(gpus):
        raise ConfigError(
            f"--eval-gpus={evaluation}: the job sees {len(gpus)} GPUs, and one must be left to train on; "
            "ask for more, or for fewer to evaluate on"
        )
    first = len(gpus) - evaluation
    return list(gpus[:first]), list(gpus[first:])


def _visible() -> list[str]:
    """Return this process's GPUs as in CUDA_VISIBLE_DEVICES."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [str(number) for number in range(count_gpus())]
    return [one.strip() for one in chosen.split(",") if one.strip() not in ("", "-1")]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CodingModelError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except subprocess.SubprocessError as error:
        print(f"error: the job's processes could not be started ({error})", file=sys.stderr)
        sys.exit(CodingModelError.exit_code)
