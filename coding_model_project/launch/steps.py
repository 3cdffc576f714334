"""Steps that are commands which a user could run: of the pipeline, the demo, sweeps and studies.

A step of the pipeline runs once per content of its inputs: its folder is named by a hash of the command,
its inputs' contents and the grader's version. A changed step runs again in a new folder, so results never
mix. `step.json`, written last, marks a step as done and records its inputs and outputs.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from coding_model_project.atomic import write_json
from coding_model_project.errors import INTERRUPTED, ConfigError, TrainingError
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.isolation.child import interrupting, start_child
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.overview import read_metrics, series
from coding_model_project.runs.resuming import changes, fingerprint

LOG = "log.txt"

console = Console()


def run(command: Sequence[str]) -> None:
    """Run `python -m command`, which shows its own progress.

    Raises:
        TrainingError: the command failed; it has printed why.
        KeyboardInterrupt: the command was interrupted.
    """
    # vLLM's warnings on a CPU are known, and would drown the figures.
    with running(command, environment={"VLLM_LOGGING_LEVEL": "ERROR"}):
        pass


def train(command: Sequence[str], run_dir: Path, *, steps: int, shown: str) -> None:
    """Run a training recipe into a folder, with its output in log.txt and a progress bar.

    Args:
        command: the recipe and its overrides, without `coding.run_dir`.
        steps: the number of training steps.
        shown: the metric beside the bar.

    Raises:
        TrainingError: the recipe failed; with the last error in its log.
        KeyboardInterrupt: the recipe was interrupted.
    """
    name = command[0].rpartition(".")[2]
    columns = (
        TextColumn(name),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console.print(f"log: {run_dir / LOG}")
    with (
        Progress(*columns, console=console) as progress,
        running([*command, f"coding.run_dir={run_dir}"], run_dir / LOG) as process,
    ):
        bar = progress.add_task(name, total=steps, note="starting")
        while process.poll() is None:
            time.sleep(0.5)
            if logged := series(read_metrics(RunFolder(run_dir).metrics), shown):
                step, value = logged[-1]
                progress.update(bar, completed=step, note=f"{shown} {value:.3f}")


@contextmanager
def running(
    command: Sequence[str],
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
    name: str = "",
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m command`, and wait for its end; this process forwards Ctrl-C to it once.

    Args:
        log: a file that its output is added to; None shows it.
        environment: variables to set unless this process has them.
        name: the step's name in errors; by default the command's first word.

    Raises:
        TrainingError: the command failed; with the last error in its log.
        KeyboardInterrupt: the command was interrupted.
    """
    with ExitStack() as stack:
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        process = start_child(
            [sys.executable, "-m", *command],
            log=None if log is None else stack.enter_context(log.open("ab")),
            environment={**(environment or {}), **os.environ},
        )
        with interrupting(process):
            yield process
            code = process.wait()
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        why = "; see above" if log is None else f": {_last_words(log)} (log: {log})"
        how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise TrainingError(f"{name or command[0]} {how}{why}")


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    nonempty = [line.strip() for line in lines if line.strip()]
    errors = [line for line in nonempty if line.startswith("error: ")]
    return (errors or nonempty or ["no output"])[-1]


# ── steps that run once per content of their inputs ──────────────────────────────────────────────────

DONE = "step.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A completed step."""

    name: str
    folder: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    """Fingerprints of the files that later steps read, by path."""
    seconds: float
    """Wall seconds; over all attempts if the command writes a run's folder."""

    def files(self) -> tuple[Path, ...]:
        """Return the step's output files."""
        return tuple(map(Path, self.outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A completed phase: its model and the evaluation of it."""

    name: str
    model: str
    steps: tuple[Done, ...]
    evaluation: Path
    """The folder of the evaluation on the held-out problems."""
    rounds: Path | None = None
    """The folder of the evaluation with repair rounds."""


def carry_out(
    root: Path,
    name: str,
    command: Sequence[str],
    reads: Sequence[Path],
    make: Callable[[Path], Sequence[Path]],
) -> Done:
    """Run a step, or reuse its result from an earlier start.

    Args:
        root: the pipeline's folder.
        name: the step's phase and what it does there, such as "sft/train".
        command: module and arguments, except the output folder.
        reads: input files that the command names, directly or by folder; identified by content, not path.
        make: function that runs the command for an output folder, resuming what is in there, and
            returns the files that later steps read.

    Raises:
        ConfigError: a file of the earlier result has changed since.
    """
    inputs = _inputs(command, reads)
    key = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:8]
    folder = root / f"{name}-{key}"
    if (folder / DONE).exists():
        done = read_done(folder)
        now = {path: fingerprint(Path(path)) for path in done.outputs}
        if changed := changes(done.outputs, now):
            raise ConfigError(
                f"{done.name}: its output files have changed ({'; '.join(changed)}): restore them, or "
                f"delete {done.folder} to run the step again"
            )
        console.print(f"[bold]{name}[/]: already done, in {folder}")
        return done
    for other in sorted(root.glob(f"{name}-*/{DONE}")):
        changed = "; ".join(changes(read_done(other.parent).inputs, inputs))
        console.print(
            f"{name}: differs from {other.parent}, which is kept ({changed})", style="dim"
        )
    console.print(f"[bold]{name}[/] in {folder}")
    started = time.monotonic()
    left = make(folder)
    summary = RunFolder(folder).summary  # of a run, which may have been resumed
    attempts_s = float(json.loads(summary.read_text())["seconds"]) if summary.exists() else 0.0
    done = Done(
        name=name,
        folder=str(folder),
        inputs=inputs,
        outputs={str(path): fingerprint(path) for path in left},
        seconds=max(time.monotonic() - started, attempts_s),
    )
    write_json(folder / DONE, asdict(done))
    return done


def _inputs(command: Sequence[str], reads: Sequence[Path]) -> dict[str, str]:
    """Return everything that a step's outcome depends on, by name."""
    words = " ".join(command)
    for folder in sorted({path.parent for path in reads}, key=lambda p: -len(str(p))):
        words = words.replace(str(folder), "")
    files = {f"{path.name} [{i}]": fingerprint(path) for i, path in enumerate(reads)}
    return {"command": words, "grader": GRADER_VERSION, **files}


def read_done(folder: Path) -> Done:
    """Read `step.json`."""
    return Done(**json.loads((folder / DONE).read_text()))
