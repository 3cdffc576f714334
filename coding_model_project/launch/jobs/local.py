"""Jobs on this machine's GPUs, as detached processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from coding_model_project.contained import open_lock
from coding_model_project.errors import ConfigError
from coding_model_project.launch.jobs.backends import LocalOptions
from coding_model_project.launch.jobs.base import Job, JobState, value_of
from coding_model_project.launch.jobs.beside import split
from coding_model_project.launch.jobs.command import (
    LOG,
    read_log,
    script,
    write_script,
    written_state,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBackend(LocalOptions):
    """A back end that runs each job as a detached process group with a lock on each of its GPUs.

    The locks are on files in the temporary folder, so they apply across all job logs of this machine.
    The kernel releases them when the job ends, however it ends.
    """

    def check(self, job: Job) -> None:
        gpus = self._each
        if not all(one.isdigit() for one in gpus) or len(set(gpus)) < len(gpus):
            raise ConfigError(f"--gpus={self.gpus}: expected different numbers such as 0,1")
        hardware = value_of(job.overrides, "hardware") or ""
        if hardware.startswith("gpu") and not gpus:
            raise ConfigError(
                f"--gpus=: hardware={hardware} needs GPUs; give them, as in --gpus 0,1"
            )
        if job.evaluation is not None:
            split(gpus, job.evaluation.gpus)

    @property
    def _each(self) -> list[str]:
        return self.gpus.replace(" ", "").split(",") if self.gpus else []

    def text(self, job: Job) -> str:
        # Without --gpus the job gets none: it holds no lock, and other jobs may use them.
        return script(job, gpus=",".join(self._each))

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        with ExitStack() as held:
            locks = [_lock(job, gpu, held) for gpu in self._each]
            file = write_script(job, package, self.text(job))
            with Path(job.folder, LOG).open("ab") as log:
                process = subprocess.Popen(
                    ["bash", str(file)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=locks,
                )
        started = psutil.Process(process.pid).create_time()
        return {"pid": str(process.pid), "started": str(started)}

    def state(self, job: Job) -> JobState:
        if _process(job) is not None:
            return JobState.running
        ended = JobState.stopped if job.handle else JobState.unknown
        return written_state(job) or ended

    def log(self, job: Job) -> bytes:
        return read_log(job)

    def ask_to_stop(self, job: Job) -> bool:
        if (process := _process(job)) is None:
            return False
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGUSR1)
        return True

    def kill(self, job: Job) -> None:
        if _process(job) is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(int(job.handle["pid"]), signal.SIGKILL)


def _process(job: Job) -> psutil.Process | None:
    """Return the job's process while it lives. Its start time guards against a reused process id."""
    if not job.handle:
        return None
    try:
        process = psutil.Process(int(job.handle["pid"]))
        same = abs(process.create_time() - float(job.handle["started"])) < 2
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def _lock(job: Job, gpu: str, held: ExitStack) -> int:
    """Lock a GPU for a job; `held` closes this process's copy of the lock.

    Raises:
        ConfigError: another job holds the lock, which the message names, or it cannot be opened.
    """
    path = Path(tempfile.gettempdir(), f"coding-model-gpu-{gpu}.lock")
    try:
        lock = open_lock(path, 0o666)
    except OSError as error:
        raise ConfigError(
            f"{path}: the lock of GPU {gpu} cannot be opened ({error.strerror}); have its owner remove it"
        ) from error
    held.callback(os.close, lock)
    with suppress(PermissionError):  # another user's file
        os.fchmod(lock, 0o666)  # despite the umask: other users' jobs must open it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 200, 0).decode(errors="replace").strip() or "another job"
        raise ConfigError(
            f"--gpus={job.options['gpus']}: GPU {gpu} is in use by the local job {holder}; choose "
            "others, or wait for it (`jobs list`)"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{job.name}\n".encode(), 0)
    return lock
