"""Jobs under Slurm, by its commands on a login node that shares a disk with the compute nodes."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.errors import ConfigError, JobError
from coding_model_project.launch.jobs.backends import SlurmOptions
from coding_model_project.launch.jobs.base import (
    IN_DRIVER,
    Job,
    JobState,
    require_hardware,
    state_of_exit,
)
from coding_model_project.launch.jobs.command import (
    LOG,
    read_log,
    script,
    write_script,
    written_state,
)

_TIMEOUT_S = 60.0
_PENDING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD")
_RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
_ENDED = {
    "COMPLETED": JobState.finished,
    "CANCELLED": JobState.stopped,
    "PREEMPTED": JobState.stopped,
    "TIMEOUT": JobState.stopped,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmBackend(SlurmOptions):
    """A back end that calls `sbatch`, `scontrol`, `squeue` and `scancel`."""

    def check(self, job: Job) -> None:
        require_hardware(job)
        wrong = next((one for one in self.sbatch if not one.startswith("--")), None)
        if wrong is not None:
            raise ConfigError(f"--sbatch={wrong}: expected an option of sbatch, as in --gres=gpu:8")
        given = {name: value for name, _, value in (one.partition("=") for one in self.sbatch)}
        if (limit_s := _seconds(given.get("--time", ""))) and limit_s <= self.signal_s:
            raise ConfigError(
                f"--sbatch=--time={given['--time']}: --signal-s={self.signal_s} would stop the job as it "
                f"starts; give more time, or a --signal-s below {limit_s} in which a step and a "
                "checkpoint end"
            )
        if self._several and (job.recipe in IN_DRIVER or job.evaluation is not None):
            what = "--with-evaluation" if job.evaluation else f"recipes.{job.recipe}"
            raise ConfigError(
                f"--sbatch=--nodes={given['--nodes']}: {what} uses the GPUs of one node; omit one of them"
            )
        _run("sbatch", "--version")

    @property
    def _several(self) -> bool:
        """Return whether the job has several nodes."""
        nodes = [one for one in self.sbatch if one.startswith("--nodes=")]
        return bool(nodes) and nodes[-1] not in ("--nodes=1", "--nodes=1-1")

    def text(self, job: Job) -> str:
        return self._script(job)

    def _script(self, job: Job) -> str:
        log = f"{job.folder}/{LOG}".replace("%", "%%")  # sbatch replaces %j and the like
        ours = (
            f"--job-name={job.name}",
            f"--output={shlex.quote(log)}",
            "--open-mode=append",
            f"--signal=B:TERM@{self.signal_s}",
            "--requeue",
        )
        return script(job, sbatch=(*ours, *self.sbatch), several=self._several)

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        Path(job.run_dir).mkdir(parents=True, exist_ok=True)
        file = write_script(job, package, self.text(job))
        return {"id": _run("sbatch", "--parsable", str(file)).strip().split(";")[0]}

    def state(self, job: Job) -> JobState:
        number = _id(job)
        if number is None:
            return written_state(job) or JobState.unknown
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
        return _cancel(job, "--batch", "--signal=USR1")

    def kill(self, job: Job) -> None:
        _cancel(job)


def _cancel(job: Job, *how: str) -> bool:
    """Signal or end a job; return whether Slurm knows it."""
    if (number := _id(job)) is None:
        return False
    _run("scancel", *how, number)
    return True


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
    """Return a job's id; look it up by name if `submit` did not get it."""
    if "id" in job.handle:
        return job.handle["id"]
    printed = _run("squeue", "--noheader", "--me", f"--name={job.name}", "--format=%i")
    return next(iter(printed.split()), None)


def _field(shown: str, name: str) -> str:
    found = re.search(rf"\b{name}=(\S+)", shown)
    return found[1] if found else ""


def _run(*command: str) -> str:
    """Run a Slurm command and return its output.

    Raises:
        ConfigError: the command is not installed, or rejects the request.
        JobError: the controller does not answer; the request may have taken effect.
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
        raise JobError(f"{command[0]} did not answer for {_TIMEOUT_S:.0f} s") from error
    if done.returncode == 0:
        return done.stdout
    message = " ".join(done.stderr.removeprefix(f"{command[0]}: ").removeprefix("error: ").split())
    if "timed out" in message:  # the request may have arrived
        raise JobError(f"{command[0]}: {message}")
    if "contact" in message:
        raise JobError(f"--backend=slurm: {message}; is slurmctld running? (`scontrol ping`)")
    raise ConfigError(f"{command[0]}: {message or f'exit code {done.returncode}'}")
