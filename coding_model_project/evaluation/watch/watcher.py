"""The polling loop of a watch, which evaluates each checkpoint once, in child processes by device."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any

from coding_model_project.atomic import write_json
from coding_model_project.data.governance import Role, role
from coding_model_project.errors import CheckpointError, ConfigError, DataError
from coding_model_project.evaluation.results import RESULTS, read_evaluation
from coding_model_project.evaluation.watch.curve import Curve, Point, read_measures, scores
from coding_model_project.evaluation.watch.found import (
    Checkpoint,
    FetchedCheckpoints,
    find,
    held_in,
    held_model,
    hold,
    merge_command,
    release,
    runs,
)
from coding_model_project.isolation.child import await_end, start_child
from coding_model_project.redaction import redacted
from coding_model_project.runs.folder import RunFolder, State, sole_writer

MAX_ATTEMPTS = 2
"""Attempts per checkpoint before it is skipped."""

_POLL_S = 0.2
_WRONG_USAGE = ConfigError.exit_code
_NEEDED = ("model", "out")
_PLACEHOLDERS = ("python", *_NEEDED, "step")
_BRACES = "write a literal brace as {{ or }}"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Options of a watch."""

    patterns: tuple[str, ...]
    out: Path
    command: str
    """Command line in which {python}, {model}, {out} and {step} are substituted by the interpreter, the
    model's folder, the folder for results (`evaluation.results` or a `curve.Tool`'s) and the step."""
    devices: tuple[Device, ...] = (None,)
    every_s: float = 20.0
    once: bool = False
    """Evaluate existing checkpoints, then end."""
    until_ended: bool = False
    """End when runs of recipes were found and none is running; the state of other runs is unknown."""


def watch(plan: Plan, say: Say) -> Curve:
    """Evaluate checkpoints as they appear, resuming an earlier watch in `plan.out`.

    Args:
        say: called with a line per evaluation.

    Returns:
        The curve, when there is nothing left to wait for.

    Raises:
        ConfigError: the command is invalid, nothing matches with `once`, or `out` is another watch's.
        CheckpointError: some checkpoints could not be evaluated; all others were.
        KeyboardInterrupt: running evaluations were interrupted; the next watch resumes them.
    """
    _check_command(plan.command)
    with sole_writer(plan.out, "watch"), Children(plan.devices) as children:
        _check_same(plan)
        return _Watch(plan, children, say).run()


class _Watch:
    def __init__(self, plan: Plan, children: Children, say: Say) -> None:
        self._plan = plan
        self._children = children
        self._say = say
        self._curve = Curve(plan.out)
        self._fetched = FetchedCheckpoints(plan.patterns, plan.out, say)
        self._known: dict[str, Checkpoint] = {}
        self._waiting: deque[str] = deque()
        self._attempts: Counter[str] = Counter()
        self._failed: dict[str, str] = {}

    def run(self) -> Curve:
        for checkpoint in held_in(self._plan.out):  # by a stopped watch
            if checkpoint.key in self._curve:
                release(checkpoint, self._plan.out)
            else:
                self._wait_for(checkpoint)
        looked, ended = float("-inf"), False
        while True:
            if time.monotonic() - looked >= self._plan.every_s:
                ended = self._nothing_runs()  # before polling, so that the last checkpoint is found
                self._fetched.refresh()
                for checkpoint in find(self._fetched.patterns):
                    if checkpoint.key not in self._known and checkpoint.key not in self._curve:
                        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                            hold(checkpoint, self._plan.out)
                            self._wait_for(checkpoint)
                looked = time.monotonic()
            while self._waiting and self._children.has_room:
                self._start(self._waiting.popleft())
            self._children.collect(self._ended)
            if self._children.are_idle and not self._waiting and ended:
                break
            time.sleep(_POLL_S)
        if not self._known and not self._curve.points:
            raise ConfigError(f"{' '.join(self._plan.patterns)}: no complete checkpoints")
        if self._failed:
            raise CheckpointError(
                f"{len(self._failed)} checkpoints could not be evaluated: "
                + "; ".join(f"{key}: {why}" for key, why in self._failed.items())
            )
        return self._curve

    def _wait_for(self, checkpoint: Checkpoint) -> None:
        self._known[checkpoint.key] = checkpoint
        self._waiting.append(checkpoint.key)

    def _nothing_runs(self) -> bool:
        """Return whether no further checkpoints are expected."""
        if self._plan.once:
            return True
        if not self._plan.until_ended:
            return False
        found = [RunFolder(run) for run in runs(self._plan.patterns)]
        states = [run.state for run in found if run.run_json.exists()]
        return bool(states) and State.running not in states

    def _start(self, key: str) -> None:
        checkpoint = self._known[key]
        folder = self._plan.out / key
        folder.mkdir(exist_ok=True)
        held = held_model(checkpoint, self._plan.out)
        model = held if held.exists() else checkpoint.model
        commands: list[Sequence[str]] = []
        if not checkpoint.is_merged:
            merged = held.with_suffix(".merged")
            commands.append(merge_command(model, merged))
            model = merged
        values = {"model": str(model), "out": str(folder), "step": str(checkpoint.step)}
        commands.append(_filled(shlex.split(self._plan.command), **values))
        self._attempts[key] += 1
        self._children.start(key, commands, self._plan.out / f"{key}.log")

    def _ended(self, child: Child, code: int) -> None:
        key = child.key
        why = f"exit code {code}: {child.last_words}"
        if code == 0:
            try:
                self._record(self._known[key], time.monotonic() - child.started)
                return
            except DataError as error:
                why = str(error)
        if code == _WRONG_USAGE:
            raise ConfigError(f"the evaluation of {key} ended with {why} (log: {child.log})")
        if self._attempts[key] < MAX_ATTEMPTS:
            self._say(f"{key}: {why}; retrying (log: {child.log})")
            self._waiting.append(key)
        else:
            self._say(f"{key}: {why}; skipped (log: {child.log})")
            self._failed[key] = why

    def _record(self, checkpoint: Checkpoint, seconds: float) -> None:
        folder = self._plan.out / checkpoint.key
        point = Point(
            key=checkpoint.key,
            run=str(checkpoint.run),
            step=checkpoint.step,
            checkpoint=str(checkpoint.folder),
            evaluation=str(folder),
            seconds=round(seconds, 1),
            **_measured(folder),
        )
        if not self._curve.points:
            for name in dict.fromkeys(name.partition("/")[0] for name in point.measures):
                source, _, split = name.rpartition("_")
                if Role.test in (role(name), role(source, split) if source else None):
                    note = "is a test set for final numbers; do not select checkpoints by it"
                    self._say(f"note: {name} {note}")
        self._curve.add(point)
        release(checkpoint, self._plan.out)
        summary = ", ".join(f"{name} {point.shown(name)}" for name in point.measures)
        self._say(f"{checkpoint.run.name} step {point.step}: {summary}; {seconds:.0f} s")


def _measured(folder: Path) -> dict[str, Any]:
    """Return the fields of a `Point` from the results in a folder.

    Raises:
        DataError: the folder has no results, or damaged ones.
    """
    if (folder / RESULTS).exists():
        evaluation = read_evaluation(folder)
        return {
            "protocol": evaluation.protocol,
            "protocol_hash": evaluation.protocol_hash,
            "measures": scores(evaluation),
        }
    tool, measures = read_measures(folder)
    return {"protocol": str(tool), "protocol_hash": "", "measures": measures}


def _filled(words: Sequence[str], **values: str) -> list[str]:
    return [word.format(python=sys.executable, **values) for word in words]


def _check_command(command: str) -> None:
    """Check a command.

    Raises:
        ConfigError: the command lacks a placeholder, has an unknown one, or names a missing program or
            script.
    """
    try:
        words = shlex.split(command)
        parsed = [part for word in words for part in Formatter().parse(word)]
        fields = {f"{name}{how or ''}{form}" for _, name, form, how in parsed if name is not None}
    except ValueError as error:
        raise ConfigError(f"--command={command}: {error}; {_BRACES}") from error
    if unknown := sorted(fields.difference(_PLACEHOLDERS)):
        known = ", ".join(f"{{{name}}}" for name in _PLACEHOLDERS)
        raise ConfigError(
            f"--command={command}: unknown placeholder {{{unknown[0]}}}; expected {known}; {_BRACES}"
        )
    if missing := [f"{{{name}}}" for name in _NEEDED if name not in fields]:
        raise ConfigError(f"--command={command}: {' and '.join(missing)} missing; add it")
    words = _filled(words, model="", out="", step="")
    if shutil.which(words[0]) is None:
        raise ConfigError(f"--command: {words[0]}: no such program in {Path.cwd()} or on the PATH")
    script = next((word for word in words if word.endswith(".py")), None)
    if script is not None and not Path(script).is_file():
        raise ConfigError(f"--command: {script}: no such file in {Path.cwd()}")


def _check_same(plan: Plan) -> None:
    """Refuse a folder of a watch with another command, because a curve's points must be comparable.

    Raises:
        ConfigError: the command differs.
    """
    file = plan.out / "watch.json"
    if file.exists():
        before = json.loads(file.read_text())["command"]
        if before != plan.command:
            raise ConfigError(
                f"--out={plan.out}: its curve is from another command ({before}); pass "
                "another folder"
            )
    write_json(file, {"command": plan.command})


# ── evaluations as child processes ────────────────────────────────────────────────────────────────

_GRACE_S = 15.0
"""Seconds for an interrupted evaluation to write its results."""

_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT")
"""Variables that would make another environment's Python load our libraries."""

Device = str | None
"""Value of CUDA_VISIBLE_DEVICES; None keeps the variable unchanged."""


@dataclass(slots=True)
class Child:
    """A sequence of commands, which ends with the first that fails."""

    key: str
    commands: list[Sequence[str]]
    log: Path
    device: Device
    started: float = field(default_factory=time.monotonic)
    process: subprocess.Popen[bytes] | None = None

    def poll(self) -> int | None:
        """Start the next command if one ended; return the exit code after the last or a failed one."""
        if self.process is not None:
            code = self.process.poll()
            if code is None or code != 0 or not self.commands:
                return code
        self._start(self.commands.pop(0))
        return None

    def _start(self, command: Sequence[str]) -> None:
        foreign = _OURS if command[0] != sys.executable else ()
        environment = {name: value for name, value in os.environ.items() if name not in foreign}
        if self.device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.device
        with self.log.open("ab") as log:
            log.write(f"$ {redacted(' '.join(command))}\n".encode())
            log.flush()
            self.process = start_child(command, log=log, environment=environment)

    def stop(self) -> None:
        """Interrupt the current command, then kill its whole process group."""
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            await_end(process, _GRACE_S)
        with suppress(ProcessLookupError):  # a leftover server would occupy the device
            os.killpg(process.pid, signal.SIGKILL)

    @property
    def last_words(self) -> str:
        """Last nonempty line of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


class Children:
    """Child processes, at most one per device. Leaving stops running ones."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._free = list(devices)
        self._running: list[Child] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running:
            child.stop()

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    @property
    def are_idle(self) -> bool:
        return not self._running

    def start(self, key: str, commands: list[Sequence[str]], log: Path) -> None:
        """Start commands on a free device."""
        child = Child(key=key, commands=commands, log=log, device=self._free.pop(0))
        self._running.append(child)
        child.poll()

    def collect(self, ended: Callable[[Child, int], None]) -> None:
        """Call `ended` with each ended child and its exit code, and free its device."""
        for child in list(self._running):
            code = child.poll()
            if code is not None:
                child.stop()
                self._running.remove(child)
                self._free.append(child.device)
                ended(child, code)
