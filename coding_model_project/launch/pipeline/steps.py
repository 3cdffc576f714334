"""Steps of a pipeline: a command with its inputs, run once per content of the inputs.

A step's folder is named by a hash of the command, its inputs' contents and the grader's version. A
changed step runs again in a new folder, so results never mix. `step.json`, written last, marks a step as
done and records its inputs and outputs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from coding_model_project.atomic import write_json
from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.launch.commands import console
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.inputs import changes, fingerprint

DONE = "step.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command of a phase."""

    phase: str
    verb: str
    """The second part of the step's name, after the phase."""
    command: tuple[str, ...]
    """Module and arguments, except the output folder."""
    reads: tuple[Path, ...]
    """Input files that the command names, directly or by folder; identified by content, not path."""

    @property
    def name(self) -> str:
        return f"{self.phase}/{self.verb}"

    def inputs(self) -> dict[str, str]:
        """Return everything that the outcome depends on, by name."""
        command = " ".join(self.command)
        for folder in sorted({path.parent for path in self.reads}, key=lambda p: -len(str(p))):
            command = command.replace(str(folder), "")
        files = {f"{path.name} [{i}]": fingerprint(path) for i, path in enumerate(self.reads)}
        return {"command": command, "grader": GRADER_VERSION, **files}


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


def carry_out(step: Step, root: Path, make: Callable[[Path], Sequence[Path]]) -> Done:
    """Run a step, or reuse its result from an earlier start.

    Args:
        root: the pipeline's folder.
        make: function that runs the command for an output folder, resuming what is in there, and
            returns the files that later steps read.

    Raises:
        ConfigError: a file of the earlier result has changed since.
    """
    inputs = step.inputs()
    key = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:8]
    folder = root / step.phase / f"{step.verb}-{key}"
    if (folder / DONE).exists():
        done = _untouched(read_done(folder))
        console.print(f"[bold]{step.name}[/]: already done, in {folder}")
        return done
    for other in sorted((root / step.phase).glob(f"{step.verb}-*/{DONE}")):
        changed = "; ".join(changes(read_done(other.parent).inputs, inputs))
        console.print(
            f"{step.name}: differs from {other.parent}, which is kept ({changed})", style="dim"
        )
    console.print(f"[bold]{step.name}[/] in {folder}")
    started = time.monotonic()
    left = make(folder)
    done = Done(
        name=step.name,
        folder=str(folder),
        inputs=inputs,
        outputs={str(path): fingerprint(path) for path in left},
        seconds=max(time.monotonic() - started, _run_seconds(folder)),
    )
    write_json(folder / DONE, asdict(done))
    return done


def read_done(folder: Path) -> Done:
    """Read `step.json`."""
    return Done(**json.loads((folder / DONE).read_text()))


def _untouched(done: Done) -> Done:
    """Raise ConfigError if an output file of the step has changed."""
    now = {path: fingerprint(Path(path)) for path in done.outputs}
    if changed := changes(done.outputs, now):
        raise ConfigError(
            f"{done.name}: its output files have changed ({'; '.join(changed)}): restore them, or "
            f"delete {done.folder} to run the step again"
        )
    return done


def _run_seconds(folder: Path) -> float:
    """Return the seconds of all attempts if the step is a run, which may have been resumed; else 0."""
    if not RunFolder(folder).summary.exists():
        return 0.0
    return float(json.loads(RunFolder(folder).summary.read_text())["seconds"])
