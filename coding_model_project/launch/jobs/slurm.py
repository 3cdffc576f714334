"""Jobs under Slurm, by its commands on a login node that shares a disk with the compute nodes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.errors import ConfigError, JobError
from coding_model_project.launch.jobs.base import (
    Job,
    JobState,
    SubmissionUnknown,
    require_hardware,
    state_of_exit,
)
from coding_model_project.launch.jobs.command import LOG, read_log, script, written_state
from coding_model_project.launch.jobs.source import unpack

_TIMEOUT_S = 60.0
_PENDING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD")
_RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
_ENDED = {
    "COMPLETED": JobState.finished,
    "CANCELLED": JobState.stopped,
    "PREEMPTED": JobState.stopped,
    "TIMEOUT": JobState.stopped,
}

_SETUP = """\
saved() {{ ls {run_dir}/checkpoints 2>/dev/null; }}
before=$(saved)
"""
_REQUEUE = """\
# At the time limit, requeue the job: the same command resumes the run. Do not requeue after `jobs stop`
# or scancel, whose SIGTERM reaches the run too; nor a training without a new checkpoint, which would
# gain as little again.
if [ $code = 130 ] && [ -z "$stopped" ] &&
    scontrol show job $SLURM_JOB_ID | grep -q JobState=RUNNING; then
    if [ {recipe} != baseline ] && [ "$(saved)" = "$before" ]; then
        echo "not requeued: no step since the last checkpoint; raise --time, or lower --signal-s" >&2
    elif scontrol requeue $SLURM_JOB_ID; then
        exit 0
    fi
fi
"""


class _NoAnswer(JobError):
    """A Slurm command without a reply in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmBackend:
    """A back end that calls `sbatch`, `scontrol`, `squeue` and `scancel`."""

    options: tuple[str, ...] = ()
    """Options of `sbatch`, such as `--gres=gpu:8`."""
    signal_s: int = 900
    """Seconds before the time limit at which Slurm signals a job to save a checkpoint."""

    def check(self, job: Job) -> None:
        require_hardware(job)
        wrong = next((one for one in self.options if not one.startswith("--")), None)
        if wrong is not None:
            raise ConfigError(f"--sbatch={wrong}: expected an option of sbatch, as in --gres=gpu:8")
        given = {name: value for name, _, value in (one.partition("=") for one in self.options)}
        if (limit_s := _seconds(given.get("--time", ""))) and limit_s <= self.signal_s:
            raise ConfigError(
                f"--sbatch=--time={given['--time']}: --signal-s={self.signal_s} would stop the job as it "
                f"starts; give more time, or a --signal-s below {limit_s} in which a step and a "
                "checkpoint end"
            )
        if given.get("--nodes", "1") not in ("1", "1-1"):
            raise ConfigError(
                f"--sbatch=--nodes={given['--nodes']}: the job runs on its first node only; omit it, or "
                "start Ray on several nodes and submit with --backend ray (docs/cluster.md)"
            )
        _run("sbatch", "--version")

    def text(self, job: Job) -> str:
        return self._script(job)

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        folder = Path(job.folder)
        unpack(package, folder / "source")
        Path(job.run_dir).mkdir(parents=True, exist_ok=True)
        file = folder / "script.sh"
        file.touch(mode=0o600)  # the overrides of a job may have secrets
        file.write_text(self.text(job))
        try:
            printed = _run("sbatch", "--parsable", str(file))
        except _NoAnswer as error:
            found = _by_name(job, unanswered=SubmissionUnknown)
            if found is None:
                raise JobError(f"{error}; the job was not submitted: try again") from error
            return {"id": found}
        return {"id": printed.strip().split(";")[0]}

    def state(self, job: Job) -> JobState:
        number = _id(job)
        if number is None:
            return JobState.unknown
        try:
            shown = _run("scontrol", "show", "job", "--oneliner", number)
        except ConfigError as error:
            if "Invalid job id" not in str(error):
                raise
            # Slurm forgets ended jobs after some minutes (MinJobAge).
            return written_state(job) or JobState.stopped
        state = _field(shown, "JobState")
        if state in _PENDING:
            return JobState.pending
        if state in _RUNNING:
            return JobState.running
        if state == "FAILED":
            code, _, signal = _field(shown, "ExitCode").partition(":")
            return state_of_exit(128 + int(signal) if signal.strip("0") else int(code or 1))
        return _ENDED.get(state, JobState.failed)

    def log(self, job: Job) -> bytes:
        return read_log(job)

    def ask_to_stop(self, job: Job) -> bool:
        return self._cancel(job, "--batch", "--signal=USR1")

    def kill(self, job: Job) -> None:
        self._cancel(job)

    def _cancel(self, job: Job, *how: str) -> bool:
        number = _id(job)
        if number is None:
            return False
        _run("scancel", *how, number)
        return True

    def _script(self, job: Job) -> str:
        log = f"{job.folder}/{LOG}".replace("%", "%%")  # sbatch replaces %j and the like
        ours = (
            f"--job-name={job.name}",
            f"--output={shlex.quote(log)}",
            "--open-mode=append",
            f"--signal=B:TERM@{self.signal_s}",
            "--requeue",
        )
        return script(
            job,
            sys.executable,
            directives=[f"#SBATCH {one}" for one in (*ours, *self.options)],
            setup=_SETUP.format(run_dir=shlex.quote(job.run_dir)),
            finish=_REQUEUE.format(recipe=job.recipe),
        )


def _seconds(limit: str) -> int | None:
    """Return a time limit in sbatch's notation in seconds; None if it has another form.

    Forms: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]
    (https://slurm.schedmd.com/sbatch.html#OPT_time).
    """
    days, dash, clock = limit.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in (*parts, days or "0")) or len(parts) > 3:
        return None
    if dash or len(parts) == 3:
        hours, minutes, seconds = (*map(int, parts), 0, 0)[:3]
    else:
        hours, (minutes, seconds) = 0, (*map(int, parts), 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _id(job: Job) -> str | None:
    """Return a job's id; look it up by name if an interrupted `submit` left no handle."""
    return job.handle.get("id") or _by_name(job)


def _by_name(job: Job, unanswered: type[JobError] = JobError) -> str | None:
    try:
        printed = _run("squeue", "--noheader", "--me", f"--name={job.name}", "--format=%i")
    except JobError as error:
        raise unanswered(
            f"{job.name}: Slurm does not answer; run `jobs list` later to find the job"
        ) from error
    return next(iter(printed.split()), None)


def _field(shown: str, name: str) -> str:
    found = re.search(rf"\b{name}=(\S+)", shown)
    return found[1] if found else ""


def _run(*command: str) -> str:
    """Run a Slurm command and return its output.

    Raises:
        ConfigError: the command is not installed, or rejects the request.
        JobError: the controller does not answer; if it is `_NoAnswer`, the request may have taken effect.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise ConfigError(
            f"--backend=slurm: {command[0]} is not installed here; run this on a login node of the "
            "cluster, or choose another back end"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise _NoAnswer(f"{command[0]} did not answer for {_TIMEOUT_S:.0f} s") from error
    if done.returncode == 0:
        return done.stdout
    message = " ".join(done.stderr.removeprefix(f"{command[0]}: ").removeprefix("error: ").split())
    if "timed out" in message:  # the request may have arrived
        raise _NoAnswer(f"{command[0]}: {message}")
    if "contact" in message:
        raise JobError(f"--backend=slurm: {message}; is slurmctld running? (`scontrol ping`)")
    raise ConfigError(f"{command[0]}: {message or f'exit code {done.returncode}'}")
