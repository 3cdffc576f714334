"""Steps of a pipeline: a command with what it reads, done once for each content of that.

A step's folder is named by a hash over the command, the contents of what it reads and the rules of
grading: what has changed is done anew beside the old, and nothing is mixed. `step.json`, written last,
says that a step is done, what it read and what it left.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.launch.commands import console
from coding_model_project.runs.folder import RunFolder, write_json
from coding_model_project.runs.inputs import changes, fingerprint

DONE = "step.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command of a phase."""

    phase: str
    verb: str
    """What it does there; with the phase, the step's name."""
    command: tuple[str, ...]
    """Module and arguments, all but where it writes."""
    reads: tuple[Path, ...]
    """Files in the command, or in folders that it names: known by content, wherever they are."""

    @property
    def name(self) -> str:
        return f"{self.phase}/{self.verb}"

    def inputs(self) -> dict[str, str]:
        """All that its outcome depends on, by name."""
        command = " ".join(self.command)
        for folder in sorted({path.parent for path in self.reads}, key=lambda p: -len(str(p))):
            command = command.replace(str(folder), "")
        files = {f"{path.name} [{i}]": fingerprint(path) for i, path in enumerate(self.reads)}
        return {"command": command, "grader": GRADER_VERSION, **files}


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A step that was carried out."""

    name: str
    folder: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    """Fingerprints of the files that later steps read, by path."""
    seconds: float
    """Wall time, over all attempts where the command keeps a run's folder."""

    def files(self) -> tuple[Path, ...]:
        """What it left."""
        return tuple(map(Path, self.outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One that was carried out: its model, and how that was found to be."""

    name: str
    model: str
    steps: tuple[Done, ...]
    evaluation: Path
    """The folder of its evaluation on the held-out problems."""
    rounds: Path | None = None
    """Of the one with repair rounds."""


def carry_out(step: Step, root: Path, make: Callable[[Path], Sequence[Path]]) -> Done:
    """Do a step, or take what an earlier start has left of it.

    Args:
        root: the pipeline's folder.
        make: runs the command for a folder to write into, going on with what is in there; returns the
            files that later steps read.

    Raises:
        ConfigError: what was left has been changed since.
    """
    inputs = step.inputs()
    key = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:8]
    folder = root / step.phase / f"{step.verb}-{key}"
    if (folder / DONE).exists():
        done = _untouched(read_done(folder))
        console.print(f"[bold]{step.name}[/]: done before, in {folder}")
        return done
    for other in sorted((root / step.phase).glob(f"{step.verb}-*/{DONE}")):
        changed = "; ".join(changes(read_done(other.parent).inputs, inputs))
        console.print(
            f"{step.name}: not as in {other.parent}, which stays ({changed})", style="dim"
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
    """What `step.json` says."""
    return Done(**json.loads((folder / DONE).read_text()))


def _untouched(done: Done) -> Done:
    """Raises:
    ConfigError: a file is not what the step left.
    """
    now = {path: fingerprint(Path(path)) for path in done.outputs}
    if changed := changes(done.outputs, now):
        raise ConfigError(
            f"{done.name} left other files than there are now ({'; '.join(changed)}): put them back, "
            f"or delete {done.folder} to have them made again"
        )
    return done


def _run_seconds(folder: Path) -> float:
    """Of all attempts, if the step is a run: one that was killed and resumed took longer than now."""
    if not RunFolder(folder).summary.exists():
        return 0.0
    return float(json.loads(RunFolder(folder).summary.read_text())["seconds"])
