"""Reasons to end a run before its last step, each told in one line.

Guards     metrics out of their bounds, for several steps in a row
mismatch   log-probabilities of the rollout and the trainer that are too far apart
Outages    too many samples that could not be judged
watching, deadline, end_process   a dead worker, or a weight sync that never finishes, for which verl
           would wait for ever
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError

from coding_model_project.configs.schema import TrainingMode
from coding_model_project.errors import SandboxError, TrainingError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.harbor.harbor_config import NotIsolatedError
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import Ungradable, last_reason, read_attempt
from coding_model_project.types import ErrorType
from coding_model_project.verl_ext.cluster.nodes import cause_of

_GUARDED = {
    "max_grad_norm": "actor/grad_norm",
    "min_entropy": "actor/entropy",
    "max_entropy": "actor/entropy",
}
"""Metrics by their key in `coding.training.guards`."""


class Guards:
    """A count, for each bound, of the latest steps in a row outside of it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Read `coding.training.guards`."""
        self._bounds = {name: float(config[name]) for name in _GUARDED if config[name] is not None}
        self._patience = int(config["patience"])
        self._in_a_row = dict.fromkeys(self._bounds, 0)

    def check(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return `guard/<key>` for each bound: the number of steps in a row outside of it, with this one.

        A missing metric leaves its count unchanged. NaN is outside of every bound.
        """
        for name, bound in self._bounds.items():
            value = metrics.get(_GUARDED[name])
            if value is not None:
                inside = value >= bound if name.startswith("min_") else value <= bound
                self._in_a_row[name] = 0 if inside else self._in_a_row[name] + 1
        return {f"guard/{name}": float(n) for name, n in self._in_a_row.items()}

    def end(self, metrics: Mapping[str, float], step: int) -> None:
        """End the run if a metric has been outside of its bound for too many steps.

        Raises:
            TrainingError: names the metric, the bound and the fix.
        """
        for name, n in self._in_a_row.items():
            if n < self._patience:
                continue
            metric = _GUARDED[name]
            side = "below" if name.startswith("min_") else "above"
            value = metrics.get(metric, math.nan)
            raise TrainingError(
                f"step {step}: {metric} is {value:.4g}, {side} coding.training.guards.{name}="
                f"{self._bounds[name]:g} for {n} steps in a row: the training is unstable; resume from "
                "an earlier checkpoint with a lower actor_rollout_ref.actor.optim.lr, or change the bound"
            )


def no_program(metrics: Mapping[str, float], style: str) -> str | None:
    """Return a warning if no response of a step holds a program, so that its gradient is 0.

    Args:
        metrics: the step's metrics.
        style: `coding.prompt`.
    """
    if metrics.get(f"judge/{ErrorType.no_code}", 0.0) < 1.0:
        return None
    other = next(one for one in PromptStyle if one != style)
    return (
        f"warning: coding.prompt={style}: no response of the first step holds a program (no_code), so "
        f"nothing is learned; the likely cause is rows whose prompts ask for another style: make them by "
        f"`data rows --prompt {style}`, or set coding.prompt={other}"
    )


MISMATCH = "rollout/mismatch"
_MISMATCH_KEY = "coding.training.guards.max_mismatch"
_LIMITS = {"float32": 0.01, "16 bits": 0.1, "fp8": 0.3}
"""Largest mean difference of a token's log-probability, in nats, by the precision of the rollout.

Seen in single precision: 1e-7 to 1e-5. Reported for 16 bits: 0.005 to 0.03, more for mixtures of experts,
whose routing flips; for fp8 weights some three times that. A policy of random weights is off by about the
logarithm of the vocabulary, 10 nats.
"""
_OF_STALE = 10.0
"""Factor of the limit for samples that may be older than the weights, as the policy has moved since."""
_OF_TOP_K = 1.0
"""Allowance for `top_k`: the rollout's probabilities are of the k likeliest tokens alone."""


def mismatch_limit(config: DictConfig) -> float:
    """Return the mismatch above which a run ends."""
    given = config.coding.training.guards.max_mismatch
    if given is not None:
        return float(given)
    rollout = config.actor_rollout_ref.rollout
    trainer = config.actor_rollout_ref.actor.fsdp_config
    if rollout.get("quantization"):
        precision = "fp8"
    elif rollout.dtype == trainer.get("dtype") == "float32":
        precision = "float32"
    else:
        precision = "16 bits"
    stale = _OF_STALE if TrainingMode(config.coding.mode).asynchronous else 1.0
    top_p = -math.log(rollout.top_p) if 0 < rollout.top_p < 1 else 0.0
    return _LIMITS[precision] * stale + top_p + (_OF_TOP_K if rollout.top_k > 0 else 0.0)


def check_mismatch(mismatch: float, most: float, step: int) -> None:
    """End the run if rollout and trainer disagree on the log-probabilities of the same tokens.

    After a weight sync both hold the same policy, so only rounding and their kernels differ. If a sync
    went wrong, the trainer would learn from another policy's samples, and nothing else would show it.

    Raises:
        TrainingError: says how far apart they are, and where to look.
    """
    if mismatch <= most:  # false for NaN too
        return
    raise TrainingError(
        f"step {step}: {MISMATCH} is {mismatch:.3g} nats a token, above {_MISMATCH_KEY}={most:g}: the "
        "rollout samples from another policy than the trainer's; look for a failed weight sync or an "
        "unsupported model in the rollout's log, compare actor_rollout_ref.rollout.dtype with "
        "actor_rollout_ref.actor.fsdp_config.dtype, or raise the bound"
    )


Belongs = Callable[[Ungradable], bool]


class Outages:
    """The ungradable samples of a run's last attempt: resumed, it takes some steps again."""

    def __init__(self, run_dir: Path, allowed: float) -> None:
        """
        Args:
            allowed: `coding.sandbox.max_failure_rate`.
        """
        self._run_dir, self._attempt = run_dir, RunFolder(run_dir).last_number
        self._allowed = allowed

    def not_isolated(self, belongs: Belongs) -> int:
        """Return the number of samples that `coding.harbor.integrity` dropped, which are no outage."""
        rows = filter(belongs, read_attempt(self._run_dir, self._attempt))
        return len({row.sample for row in rows if row.error == NotIsolatedError.__name__})

    def lost(self, belongs: Belongs) -> list[Ungradable]:
        """Return the last row of each sample that could not be judged."""
        rows = filter(belongs, read_attempt(self._run_dir, self._attempt))
        return list({row.sample: row for row in rows}.values())

    def stop(self, infra_rate: float, whose: str) -> None:
        """End the run if more samples than allowed could not be judged.

        Raises:
            SandboxError: too many samples are ungradable; has the last reason.
        """
        if infra_rate > self._allowed:
            raise SandboxError(
                f"{infra_rate:.0%} of {whose} samples could not be judged, more than "
                f"coding.sandbox.max_failure_rate={self._allowed}: stopped instead of continuing with "
                f"the rest{self.why()}"
            )

    def why(self) -> str:
        """Return the end of a message with the reason why samples were lost."""
        reason = last_reason(self._run_dir, self._attempt)
        if not reason:  # no sample reached the judge
            return "; see the rollout server's errors above"
        return f"; last reason (all are in ungradable.jsonl): {reason}"


_PING_EVERY_S = 10.0
_PING_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 10.0

Fatal = Callable[[str], object]
"""A function that ends the process with a reason, from any thread."""


@contextlib.contextmanager
def watching(actors: Sequence[Any], fatal: Fatal) -> Iterator[None]:
    """Call `fatal` if one of these Ray actors dies, whose result verl would await for ever."""
    stop = threading.Event()

    def ping() -> None:
        while not stop.wait(_PING_EVERY_S):
            for actor in actors:
                try:
                    ray.get(actor.__ray_ready__.remote(), timeout=_PING_TIMEOUT_S)
                except (GetTimeoutError, ActorUnavailableError):
                    continue  # busy, or out of reach for a moment: Ray reports a death later
                except RayActorError as error:
                    if not stop.is_set():
                        fatal(cause_of(error))

    thread = threading.Thread(target=ping, name="watch-workers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()


@contextlib.contextmanager
def deadline(timeout_s: float, fatal: Fatal, reason: str) -> Iterator[None]:
    """Call `fatal` if the body does not finish in time."""
    timer = threading.Timer(timeout_s, fatal, [reason])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_process(file: Path, reason: str) -> None:
    """Write the reason into a file and end this process, from any thread, even if the disk hangs."""
    hung = threading.Timer(_END_TIMEOUT_S, os._exit, [3])  # a file system may hang
    hung.daemon = True
    hung.start()
    try:
        file.write_text(reason + "\n")
    except OSError as error:  # print the reason instead
        print(f"{file.parent}: {error.strerror}; {reason}", file=sys.stderr, flush=True)  # noqa: T201
    finally:
        os._exit(3)
