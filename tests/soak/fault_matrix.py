"""Faults of processes and disks, injected into real GRPO runs: `make soak` (about 15 minutes on 2 cores).

For each fault: a run is started, hit in the middle, and started again with the same command. It must
end (or go on) as it should, with one line that says why; leave no process behind; lose no more than
the steps since its last checkpoint; and go on with the same problems at the same accepted rate.
`tests/end_to_end/test_faults.py` has SIGTERM, a damaged checkpoint and the faults of W&B.

    python -m tests.soak.fault_matrix [NAME ...]
"""

import json
import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from coding_model_project.runs.checkpoints import checkpoints_in, step_of, verify
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import Rollout, read_all_rollouts
from tests.end_to_end.test_interruption import left_running
from tests.processes import command_line
from tests.soak.grpo_runs import PATIENCE_S, prepare_data, start, steps, wait

SAVE_EVERY = 2
HIT_AFTER = 3
"""The fault strikes in the step after this one, one step after a checkpoint."""
BALLAST = "ballast"
SMALL_DISK_MB = 200
ONE = "--one"
OVERRIDES = [
    "trainer.total_training_steps=100",
    f"trainer.save_freq={SAVE_EVERY}",
    "trainer.test_freq=-1",
    "trainer.val_before_train=false",
]

Strike = Callable[[subprocess.Popen[bytes], RunFolder], None]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault, and the expected outcome of the run."""

    name: str
    strike: Strike
    exit_codes: tuple[int, ...]
    """Allowed exit codes; empty if the run must survive the fault."""
    says: str = ""
    """Expected part of the output."""
    recipe: str = "grpo"
    on_small_disk: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    ended_s: float | None
    exit_code: int | None
    left: int
    lost: int
    """Number of repeated steps."""
    resumed_at: int
    before: float
    """Accepted share of the repeated steps, the first time."""
    after: float
    failures: list[str]


def kill_process(name: str) -> Strike:
    """Kill -9 the run's first process whose command line has this prefix."""

    def strike(process: subprocess.Popen[bytes], run: RunFolder) -> None:
        for child in psutil.Process(process.pid).children(recursive=True):
            if command_line(child).startswith(name):
                child.kill()
                return
        raise RuntimeError(f"no process {name}")

    return strike


def kill_sandbox(process: subprocess.Popen[bytes], run: RunFolder) -> None:
    """Kill -9 all children of the reward worker, which are the sandbox's processes."""
    for child in psutil.Process(process.pid).children(recursive=True):
        if command_line(child).startswith("ray::RewardLoopWorker"):
            for sandboxed in child.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    sandboxed.kill()


def kill_driver(process: subprocess.Popen[bytes], run: RunFolder) -> None:
    process.kill()


def fill_disk(process: subprocess.Popen[bytes], run: RunFolder) -> None:
    """Fill the run's disk, which is a separate file system."""
    with (run.path / BALLAST).open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 65536)


FAULTS = [
    Fault(name="driver, kill -9", strike=kill_driver, exit_codes=(-9,)),
    Fault(name="trainer, kill -9", strike=kill_process("ray::TaskRunner"), exit_codes=(3,)),
    Fault(name="training worker, kill -9", strike=kill_process("ray::WorkerDict"), exit_codes=(3,)),
    Fault(name="rollout server, kill -9", strike=kill_process("VLLM::EngineCore"), exit_codes=(3,)),
    Fault(name="reward worker, kill -9", strike=kill_process("ray::RewardLoop"), exit_codes=(3,)),
    Fault(name="sandbox, kill -9", strike=kill_sandbox, exit_codes=()),
    Fault(name="disk full", strike=fill_disk, exit_codes=(3,), says="is full", on_small_disk=True),
    Fault(
        name="driver of recipes.repair, kill -9",
        strike=kill_driver,
        exit_codes=(-9,),
        recipe="repair",
    ),
]


def try_fault(fault: Fault, folder: Path) -> Outcome:
    """Start a run, inject the fault, start again, and return the outcome.

    Raises:
        RuntimeError: a run did not get as far as it should.
    """
    run = RunFolder(folder / "run")
    run.path.mkdir()
    if fault.on_small_disk:
        size = f"size={SMALL_DISK_MB}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", run.path], check=True)
    process = start(run, folder / "first.txt", OVERRIDES, fault.recipe)
    wait(process, lambda: steps(run, 1)[-1:] >= [HIT_AFTER], f"step {HIT_AFTER}")
    fault.strike(process, run)
    ended_s = _ended(fault, process, run)
    exit_code = process.returncode
    if process.poll() is None:
        process.terminate()
        process.wait(PATIENCE_S)
    (run.path / BALLAST).unlink(missing_ok=True)
    left = left_running(run.path)
    saved = [step_of(c) for c in checkpoints_in(run.checkpoints) if not verify(c)]
    expected = max(saved, default=0) + 1
    done = max(steps(run, 1)[-1], expected)

    process = start(run, folder / "second.txt", OVERRIDES, fault.recipe)
    wait(process, lambda: steps(run, 2)[-1:] >= [done], f"step {done} after the resume")
    process.terminate()
    process.wait(PATIENCE_S)
    rows = list(read_all_rollouts(run.path))
    printed = "".join((folder / name).read_text() for name in ("first.txt", "second.txt"))
    return _outcome(fault, rows, expected, ended_s, exit_code, len(left), printed)


def _ended(fault: Fault, process: subprocess.Popen[bytes], run: RunFolder) -> float | None:
    """Return the seconds from the fault to the run's end; None if it continued, or did not end."""
    struck = time.monotonic()
    if not fault.exit_codes:
        wait(process, lambda: steps(run, 1)[-1:] >= [HIT_AFTER + 2], "two more steps")
        return None
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        return None
    return time.monotonic() - struck


def _outcome(
    fault: Fault,
    rows: list[Rollout],
    expected: int,
    ended_s: float | None,
    exit_code: int | None,
    left: int,
    printed: str,
) -> Outcome:
    done = max(row.step for row in rows if row.attempt == 1)
    resumed_at = min(row.step for row in rows if row.attempt == 2)
    again = [[r for r in rows if r.attempt == n and resumed_at <= r.step <= done] for n in (1, 2)]
    before, after = map(_accepted, again)
    problems = [sorted((row.step, row.problem) for row in part) for part in again]
    checks = {
        f"exit code {exit_code}": exit_code in (fault.exit_codes or (None,)),
        f"{left} processes left": left == 0,
        f"resumed at step {resumed_at}, not {expected}": resumed_at == expected,
        "other problems after the resume": problems[0] == problems[1],
        f"accepted {before:.2f} before and {after:.2f} after": _alike(again),
        f"did not say {fault.says!r}": fault.says in printed,
    }
    return Outcome(
        ended_s=ended_s,
        exit_code=exit_code,
        left=left,
        lost=done - resumed_at + 1,
        resumed_at=resumed_at,
        before=before,
        after=after,
        failures=[what for what, holds in checks.items() if not holds],
    )


def _accepted(rows: list[Rollout]) -> float:
    return sum(row.reward for row in rows) / len(rows) if rows else math.nan


def _alike(parts: list[list[Rollout]]) -> bool:
    """Return whether two samples of the same problems differ by at most four standard errors."""
    if not all(parts):
        return True  # no step was done twice
    pooled = _accepted([*parts[0], *parts[1]])
    error = math.sqrt(max(pooled * (1 - pooled), 0.01) * sum(1 / len(part) for part in parts))
    return abs(_accepted(parts[0]) - _accepted(parts[1])) <= 4 * error


def main(names: list[str]) -> int:
    if names[:1] == [ONE]:
        fault = next(fault for fault in FAULTS if fault.name == names[1])
        print(json.dumps(asdict(try_fault(fault, Path(names[2])))))
        return 0
    console = Console(width=140)
    prepare_data()
    table = Table(title="faults of a GRPO run")
    for column in ("fault", "the run", "exit", "left", "lost", "resumed at"):
        table.add_column(column)
    table.add_column("accepted in steps done twice")
    table.add_column("verdict")
    failed = False
    for fault in FAULTS:
        if names and fault.name not in names:
            continue
        console.print(f"{fault.name} ...")
        outcome = _in_a_process_of_its_own(fault)
        failed |= outcome is None or bool(outcome.failures)
        table.add_row(fault.name, *_cells(outcome))
    console.print(table)
    return int(failed)


def _cells(outcome: Outcome | None) -> list[str]:
    if outcome is None:
        return ["", "", "", "", "", "", "see above"]
    return [
        "goes on" if outcome.ended_s is None else f"ends after {outcome.ended_s:.0f} s",
        str("" if outcome.exit_code is None else outcome.exit_code),
        f"{outcome.left} processes",
        f"{outcome.lost} steps",
        f"step {outcome.resumed_at}",
        f"{outcome.before:.2f} before, {outcome.after:.2f} after" if outcome.lost else "",
        "; ".join(outcome.failures) or "ok",
    ]


def _in_a_process_of_its_own(fault: Fault) -> Outcome | None:
    """Run a fault in a separate process, and in a user and mount namespace if it needs its own disk."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    command = [sys.executable, "-m", __spec__.name, ONE, fault.name, str(folder)]
    if fault.on_small_disk:
        command = ["unshare", "--user", "--map-root-user", "--mount", *command]
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        return (
            Outcome(**json.loads(result.stdout.splitlines()[-1])) if not result.returncode else None
        )
    finally:
        for process in left_running(folder):
            process.send_signal(signal.SIGKILL)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
