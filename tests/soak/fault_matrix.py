"""Everything that can happen to a GRPO run, done to real runs: `make soak` (about 25 minutes on 2 cores).

For each fault: a run is started, hit in the middle, and started again with the same command. It must
end (or go on) as it should, with one line that says why; leave no process behind; lose no more than
the steps since its last checkpoint; and go on with the same problems at the same accepted rate.

    python -m tests.soak.fault_matrix [NAME ...]
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from coding_model_project.runs.checkpoints import checkpoints_in, step_of
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import Rollout, _rows
from tests.end_to_end.test_interruption import left_running

DATA = Path("data/tinycode")
SAVE_EVERY = 2
HIT_AFTER = 3
"""The step in whose successor the fault strikes: one step after a checkpoint."""
PATIENCE_S = 240
OVERRIDES = [
    "data.train_batch_size=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "trainer.total_training_steps=100",
    f"trainer.save_freq={SAVE_EVERY}",
    "trainer.test_freq=-1",
    "trainer.val_before_train=false",
    "coding.min_memory_gb=4",
]

Strike = Callable[[subprocess.Popen[bytes], RunFolder], None]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is done to a run, and what must come of it."""

    name: str
    strike: Strike
    exit_codes: tuple[int, ...]
    """How the run may end; empty: it must go on."""
    says: str = ""
    """Part of what it prints, in the attempt that is hit or in the one after."""
    environment: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    in_small_disk: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    ended_s: float | None
    exit_code: int | None
    left: int
    lost: int
    """Steps that were done and are done again."""
    resumed_at: int
    same_problems: bool
    accepted: tuple[float, float]
    """Of the steps that were done twice: before and after."""
    failures: list[str]


def kill_process(command: str) -> Strike:
    """Kill -9 the run's first process whose command line starts so."""

    def strike(process: subprocess.Popen[bytes], run: RunFolder) -> None:
        for child in psutil.Process(process.pid).children(recursive=True):
            if " ".join(child.cmdline()).startswith(command):
                child.kill()
                return
        raise RuntimeError(f"no process {command}")

    return strike


def kill_sandbox(process: subprocess.Popen[bytes], run: RunFolder) -> None:
    """Kill -9 all that the reward worker has started: the sandbox's own processes."""
    for child in psutil.Process(process.pid).children(recursive=True):
        if " ".join(child.cmdline()).startswith("ray::RewardLoopWorker"):
            for sandboxed in child.children(recursive=True):
                sandboxed.kill()


def kill_driver(process: subprocess.Popen[bytes], run: RunFolder) -> None:
    process.kill()


def send_sigterm(process: subprocess.Popen[bytes], run: RunFolder) -> None:
    process.terminate()


def kill_and_corrupt(process: subprocess.Popen[bytes], run: RunFolder) -> None:
    """Kill -9, then take a byte from the newest checkpoint's weights."""
    process.kill()
    process.wait()
    weights = next(checkpoints_in(run.checkpoints)[0].glob("actor/model_*.pt"))
    weights.write_bytes(weights.read_bytes()[:-1])


def fill_disk(process: subprocess.Popen[bytes], run: RunFolder) -> None:
    """Leave the run's disk, a file system of its own, without a byte."""
    with (run.path / "ballast").open("wb") as file:
        try:
            while True:
                file.write(b"\0" * 65536)
                file.flush()
        except OSError:
            return


def nothing(process: subprocess.Popen[bytes], run: RunFolder) -> None:
    """The fault is in the environment."""


FAULTS = [
    Fault(name="driver, kill -9", strike=kill_driver, exit_codes=(-9,)),
    Fault(name="trainer, kill -9", strike=kill_process("ray::CodingTaskRunner"), exit_codes=(3,)),
    Fault(name="training worker, kill -9", strike=kill_process("ray::WorkerDict"), exit_codes=(3,)),
    Fault(name="rollout server, kill -9", strike=kill_process("VLLM::EngineCore"), exit_codes=(3,)),
    Fault(name="reward worker, kill -9", strike=kill_process("ray::RewardLoop"), exit_codes=(3,)),
    Fault(name="sandbox, kill -9", strike=kill_sandbox, exit_codes=()),
    Fault(
        name="newest checkpoint damaged",
        strike=kill_and_corrupt,
        exit_codes=(-9,),
        says="is damaged",
    ),
    Fault(name="SIGTERM", strike=send_sigterm, exit_codes=(130,), says="with a checkpoint"),
    Fault(name="disk full", strike=fill_disk, exit_codes=(3,), says="is full", in_small_disk=True),
    Fault(
        name="W&B out of reach",
        strike=nothing,
        exit_codes=(),
        says="W&B cannot be reached",
        environment={
            "WANDB_MODE": "online",
            "WANDB_BASE_URL": "http://127.0.0.1:9",
            "WANDB_API_KEY": "0" * 40,
            "WANDB_INIT_TIMEOUT": "5",
        },
        overrides=("trainer.logger=[console,file,wandb]",),
    ),
]


def try_fault(fault: Fault, folder: Path) -> Outcome:
    """Start, strike, start again; see what came of it."""
    run = RunFolder(folder / "run")
    failures: list[str] = []
    process = _start(fault, run, folder / "first.txt")
    _wait_for_step(run, process, HIT_AFTER)
    fault.strike(process, run)
    struck = time.monotonic()
    ended_s = exit_code = None
    if fault.exit_codes:
        try:
            exit_code = process.wait(PATIENCE_S)
            ended_s = time.monotonic() - struck
        except subprocess.TimeoutExpired:
            failures.append(f"still running after {PATIENCE_S} s")
    else:
        _wait_for_step(run, process, HIT_AFTER + 2)
    if exit_code not in (fault.exit_codes or (None,)):
        failures.append(f"exit code {exit_code}")
    (run.path / "ballast").unlink(missing_ok=True)
    process.terminate() if process.poll() is None else None
    process.wait(PATIENCE_S)
    left = left_running(run.path)
    if left:
        failures.append(f"left running: {[p.name() for p in left]}")
    saved = max((step_of(c) for c in checkpoints_in(run.checkpoints)), default=0)
    if fault.strike is kill_and_corrupt:
        saved -= SAVE_EVERY
    done = _last_step(run)

    process = _start(fault, run, folder / "second.txt")
    _wait_for_step(run, process, max(done, saved + 1), attempt=2)
    process.terminate()
    process.wait(PATIENCE_S)
    rows = [Rollout(**row) for row in _rows(run.path)]
    resumed_at = min(row.step for row in rows if row.attempt == 2)
    if resumed_at != saved + 1:
        failures.append(f"resumed at step {resumed_at}, the checkpoint is of step {saved}")
    again = [[r for r in rows if r.attempt == n and resumed_at <= r.step <= done] for n in (1, 2)]
    problems = [sorted((row.step, row.problem) for row in part) for part in again]
    accepted = tuple(_accepted(part) for part in again)
    if problems[0] != problems[1]:
        failures.append("other problems after the resume")
    if not _alike(again):
        failures.append(f"accepted {accepted[0]:.2f} before and {accepted[1]:.2f} after")
    printed = "".join((folder / name).read_text() for name in ("first.txt", "second.txt"))
    if fault.says not in printed:
        failures.append(f"did not say {fault.says!r}")
    return Outcome(
        ended_s=ended_s,
        exit_code=exit_code,
        left=len(left),
        lost=max(0, done - saved),
        resumed_at=resumed_at,
        same_problems=problems[0] == problems[1],
        accepted=(accepted[0], accepted[1]),
        failures=failures,
    )


def _start(fault: Fault, run: RunFolder, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "recipes.grpo", f"coding.run_dir={run.path}", *OVERRIDES]
    with output.open("wb") as printed:
        return subprocess.Popen(
            [*command, *fault.overrides],
            stdout=printed,
            stderr=printed,
            env=os.environ | fault.environment,
            start_new_session=True,
        )


def _steps(run: RunFolder) -> list[int]:
    text = run.metrics.read_text() if run.metrics.exists() else ""
    return [json.loads(line)["step"] for line in text.splitlines() if line.endswith("}")]


def _last_step(run: RunFolder) -> int:
    return _steps(run)[-1]


def _wait_for_step(
    run: RunFolder, process: subprocess.Popen[bytes], step: int, attempt: int = 1
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(run.attempts()) < attempt or not (_steps(run) and _last_step(run) >= step):
        if attempt == 2 and len(run.attempts()) == 2 and _is_done_again(run, step):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"step {step} was not reached; see {run.path.parent}")
        time.sleep(0.2)
    if attempt == 2:
        while not _is_done_again(run, step):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"step {step} was not done again; see {run.path.parent}")
            time.sleep(0.2)


def _is_done_again(run: RunFolder, step: int) -> bool:
    return any(row["attempt"] == 2 and row["step"] >= step for row in _rows(run.path))


def _accepted(rows: list[Rollout]) -> float:
    return sum(row.reward for row in rows) / len(rows) if rows else math.nan


def _alike(parts: list[list[Rollout]]) -> bool:
    """Whether two samples of the same problems differ by no more than four standard errors."""
    if not all(parts):
        return True  # no step was done twice
    pooled = _accepted([*parts[0], *parts[1]])
    error = math.sqrt(max(pooled * (1 - pooled), 0.01) * sum(1 / len(part) for part in parts))
    return abs(_accepted(parts[0]) - _accepted(parts[1])) <= 4 * error


def main(names: list[str]) -> int:
    console = Console()
    if not (DATA / "base" / "config.json").exists():
        prepare = ["coding_model_project", "data", "prepare", "tinycode", "--base-model"]
        subprocess.run([sys.executable, "-m", *prepare], check=True)
    table = Table(title="faults of a GRPO run")
    for column in ("fault", "ended", "exit", "left", "lost", "resumed at", "same problems"):
        table.add_column(column)
    table.add_column("accepted, before and after")
    table.add_column("verdict")
    failed = False
    for fault in FAULTS:
        if names and fault.name not in names:
            continue
        console.print(f"{fault.name} ...")
        outcome = _tried(fault)
        failed |= bool(outcome.failures)
        ended = "goes on" if outcome.ended_s is None else f"after {outcome.ended_s:.0f} s"
        table.add_row(
            fault.name,
            ended,
            str(outcome.exit_code if outcome.exit_code is not None else ""),
            str(outcome.left),
            f"{outcome.lost} steps",
            f"step {outcome.resumed_at}",
            "yes" if outcome.same_problems else "no",
            "{:.2f}, {:.2f}".format(*outcome.accepted),
            "; ".join(outcome.failures) or "ok",
        )
    console.print(table)
    return int(failed)


def _tried(fault: Fault) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        return try_fault(fault, folder)
    except (RuntimeError, OSError) as error:
        nan = math.nan
        return Outcome(
            ended_s=None,
            exit_code=None,
            left=len(left_running(folder)),
            lost=0,
            resumed_at=0,
            same_problems=False,
            accepted=(nan, nan),
            failures=[str(error)],
        )
    finally:
        for process in left_running(folder):
            process.send_signal(signal.SIGKILL)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
