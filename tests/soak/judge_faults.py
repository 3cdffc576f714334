"""Faults of every kind, injected into the real judge server of a GRPO run: `make soak`.

One run lives through all that passes or hits a part of its requests; what it trained on is then held
against the truth (`evidence`). Others lose their server for good.

    python -m tests.soak.judge_faults [lasting|gone ...]      (about 12 minutes on 2 cores)
"""

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import read_ungradable
from tests.contract.conftest import ServerProcess
from tests.end_to_end.test_interruption import left_running
from tests.processes import command_line
from tests.soak import fault_proxy
from tests.soak.evidence import Evidence, evidence
from tests.soak.fault_proxy import Fault
from tests.soak.grpo_runs import PROMPTS, SAMPLES, prepare_data, start, steps, wait

EXPECTED = PROMPTS * SAMPLES
RETRY_S = 6
OVERRIDES = [
    "experiment=quick",
    "sandbox=fusion",
    f"coding.sandbox.retry_s={RETRY_S}",
    "coding.sandbox.timeout_s=5",
]
PART = 0.12
"""Share of programs that a lasting fault hits, in any request. At most
`coding.sandbox.max_failure_rate` of the samples may be lost."""


class World:
    """A server, and the proxy through which a run reaches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ServerProcess()
        fault_proxy.choose(folder, Fault.none)
        port = self.server.url.rpartition(":")[2]
        command = [sys.executable, "-m", fault_proxy.__name__, port, str(folder)]
        self._proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._proxy.stdout is not None
        self.url = f"http://127.0.0.1:{self._proxy.stdout.readline().strip()}"

    def fail(self, fault: Fault, share: float) -> None:
        fault_proxy.choose(self.folder, fault, share)

    def lose(self) -> None:
        """Stop the server, so that nothing listens at its address."""
        self._proxy.kill()
        self._proxy.wait()
        self.server.kill()

    def close(self) -> None:
        self._proxy.kill()
        self._proxy.wait()
        self.server.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A fault that a run must survive."""

    name: str
    begin: Callable[[World], None]
    end: Callable[[World], None] = lambda world: world.fail(Fault.none, 0.0)
    lasts_s: float | None = None
    """Duration; None lasts for a whole step, so that some samples cannot be judged."""


def part_of_requests(fault: Fault) -> Trial:
    return Trial(name=f"{fault}, {PART:.0%} of programs", begin=lambda w: w.fail(fault, PART))


def all_requests(fault: Fault, lasts_s: float) -> Trial:
    return Trial(
        name=f"{fault}, all for {lasts_s:g} s", begin=lambda w: w.fail(fault, 1.0), lasts_s=lasts_s
    )


TRIALS = [
    Trial(
        name="kill -9, back after 2 s",
        begin=lambda w: w.server.kill(),
        end=lambda w: w.server.start(),
        lasts_s=2.0,
    ),
    Trial(
        name="frozen for 4 s",
        begin=lambda w: w.server.send(signal.SIGSTOP),
        end=lambda w: w.server.send(signal.SIGCONT),
        lasts_s=4.0,
    ),
    all_requests(Fault.busy, 3.0),
    all_requests(Fault.slow, 5.0),
    # Last: what they hit may still be tried again when the next one begins.
    *(part_of_requests(fault) for fault in Fault if fault not in (Fault.none, Fault.slow)),
]


@dataclass(slots=True)
class Row:
    """A line of the table."""

    fault: str
    run: str
    requests: str = ""
    samples: str = ""
    truth: str = ""
    failures: list[str] = field(default_factory=list)


def lasting(folder: Path) -> list[Row]:
    """Run through all trials, and check the samples trained on in each."""
    run = RunFolder(folder / "run")
    during: list[tuple[Trial, list[int], int]] = []
    with _world(folder) as world, _run(run, folder, world, len(TRIALS) * 4) as process:
        wait(process, lambda: bool(steps(run)), "the first step")
        for trial in TRIALS:
            first, hits = steps(run)[-1], len(fault_proxy.hits(world.folder))
            trial.begin(world)
            if trial.lasts_s is not None:
                time.sleep(trial.lasts_s)
                trial.end(world)
            wait(process, lambda n=first: steps(run)[-1] >= n + 2, f"two steps with {trial.name}")
            trial.end(world) if trial.lasts_s is None else None
            last = steps(run)[-1]
            hit = len(fault_proxy.hits(world.folder)) - hits
            during.append((trial, list(range(first + 1, last + 1)), hit))
        process.terminate()
        code = process.wait(120)
    found = {one.step: one for one in asyncio.run(evidence(run))}
    rows = [_row(trial, [found[n] for n in numbers], hit) for trial, numbers, hit in during]
    problems = _left(run) + ([] if code == 130 else [f"exit code {code} after SIGTERM"])
    others = [e for e in found.values() if not any(e.step in numbers for _, numbers, _ in during)]
    rows.append(_row(Trial(name="(steps between)", begin=lambda w: None, lasts_s=0.0), others, 0))
    rows[-1].failures += problems
    return rows


def _row(trial: Trial, found: Sequence[Evidence], hit: int) -> Row:
    left_out, alone = sum(e.ungradable for e in found), sum(e.alone for e in found)
    failures = [fault for e in found for fault in e.faults(EXPECTED)]
    if trial.lasts_s is None and not left_out:
        failures.append("nothing was hit")
    if trial.lasts_s is not None and left_out:
        failures.append("lost samples to what passes")
    mean = [sum(getattr(e, n) for e in found) / len(found) for n in ("reward", "reward_if_zero")]
    worst = max(e.worst_advantage for e in found)
    loss = max(abs(e.loss - e.true_loss) for e in found)
    return Row(
        fault=trial.name,
        run=f"goes on, {len(found)} steps",
        requests=f"{hit} failed" if hit else "",
        samples=f"{sum(e.trained for e in found)} trained, {left_out} left out, {alone} alone; "
        f"reward {mean[0]:.3f}, {mean[1]:.3f} with zeros",
        truth=f"{sum(e.wrong_verdicts for e in found)} wrong verdicts; off at most: "
        f"advantage {worst:.0e}, loss {loss:.0e}",
        failures=failures,
    )


def gone(folder: Path) -> list[Row]:
    """Check that a run stops when its server is lost for good, and trained only on true rewards."""
    return [
        _lost(
            folder / "training", "gone for good, in training", lambda run, _: len(steps(run)) > 1
        ),
        _lost(
            folder / "validation",
            "gone for good, before the first validation",
            lambda _, process: any(
                command_line(child).startswith("ray::")
                for child in psutil.Process(process.pid).children(recursive=True)
            ),
            "trainer.val_before_train=true",
        ),
    ]


def _lost(
    folder: Path,
    name: str,
    ready: Callable[[RunFolder, subprocess.Popen[bytes]], bool],
    *overrides: str,
) -> Row:
    folder.mkdir()
    run = RunFolder(folder / "run")
    with _world(folder) as world, _run(run, folder, world, 50, *overrides) as process:
        wait(process, lambda: ready(run, process), "the moment to strike")
        world.lose()
        struck = time.monotonic()
        code = process.wait(200)
        ended_s = time.monotonic() - struck
    failures = _ends_in_one_line(code, 3, folder / "output.txt", "cannot connect") + _left(run)
    found = asyncio.run(evidence(run)) if steps(run) else []
    failures += [fault for e in found for fault in e.faults(EXPECTED)]
    n = len(list(read_ungradable(run.path)))
    return Row(
        fault=name,
        run=f"ends after {ended_s:.0f} s, exit {code}",
        samples=f"{sum(e.trained for e in found)} trained, {n} could not be judged",
        truth=f"{sum(e.wrong_verdicts for e in found)} wrong verdicts",
        failures=failures,
    )


@contextmanager
def _world(folder: Path) -> Iterator[World]:
    world = World(folder)
    try:
        yield world
    finally:
        world.close()


@contextmanager
def _run(
    run: RunFolder, folder: Path, world: World, n_steps: int, *overrides: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a run judged by this server, and end it on leaving if it still runs."""
    more = [*overrides, f"coding.sandbox.urls=[{world.url}]"]
    more.append(f"trainer.total_training_steps={n_steps}")
    process = start(run, folder / "output.txt", [*OVERRIDES, *more])
    try:
        yield process
    except BaseException:
        print((folder / "output.txt").read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        process.kill()
        process.wait()


def _ends_in_one_line(code: int, wanted: int, output: Path, says: str) -> list[str]:
    lines = output.read_text().strip().splitlines()
    checks = {
        f"exit code {code}, not {wanted}": code == wanted,
        f"the last line is {lines[-1]!r}": lines[-1].startswith("error: ") and says in lines[-1],
        "it says so more than once": sum(line.startswith("error: ") for line in lines) == 1,
    }
    return [what for what, holds in checks.items() if not holds]


def _left(run: RunFolder) -> list[str]:
    left = left_running(run.path)
    return [f"{len(left)} processes left"] if left else []


PARTS = {"gone": gone, "lasting": lasting}


def main(names: Sequence[str]) -> int:
    prepare_data()
    console = Console(width=200)
    table = Table(title="faults of a GRPO run's judge")
    for column in ("fault", "the run", "requests", "samples", "against the truth", "verdict"):
        table.add_column(column)
    verdicts: Counter[bool] = Counter()
    for name in names or PARTS:
        folder = Path(tempfile.mkdtemp(prefix="judge-faults-"))
        console.print(f"{name} ... (in {folder})")
        for row in PARTS[name](folder):
            verdicts[not row.failures] += 1
            verdict = "; ".join(row.failures) or "ok"
            table.add_row(row.fault, row.run, row.requests, row.samples, row.truth, verdict)
    console.print(table)
    print(f"{verdicts[True]} of {verdicts.total()} hold")
    return int(verdicts[False] > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
