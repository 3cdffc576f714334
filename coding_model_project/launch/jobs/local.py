"""Jobs on this machine's GPUs, as detached processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from coding_model_project.contained import open_lock
from coding_model_project.errors import ConfigError, JobError
from coding_model_project.launch.jobs.base import Job, JobState, value_of
from coding_model_project.launch.jobs.beside import split
from coding_model_project.launch.jobs.command import LOG, read_log, script, written_state
from coding_model_project.launch.jobs.source import unpack

_KILL_S = 10.0


@dataclass(frozen=True, slots=True)
class LocalBackend:
    """A back end that runs each job as a detached process group with a lock on each of its GPUs.

    The locks are on files in the temporary folder, so they apply across all job logs of this machine.
    The kernel releases them when the job ends, however it ends.
    """

    def check(self, job: Job) -> None:
        gpus = _gpus(job)
        if not all(one.isdigit() for one in gpus) or len(set(gpus)) < len(gpus):
            raise ConfigError(f"--gpus={job.target}: expected different numbers such as 0,1")
        hardware = value_of(job.overrides, "hardware") or ""
        if hardware.startswith("gpu") and not gpus:
            raise ConfigError(
                f"--gpus=: hardware={hardware} needs GPUs; give them, as in --gpus 0,1"
            )
        if job.evaluation is not None:
            split(gpus, job.evaluation.gpus)

    def text(self, job: Job) -> str:
        # Without --gpus the job gets none: it holds no lock, and other jobs may use them.
        return script(job, sys.executable, setup=f"export CUDA_VISIBLE_DEVICES={job.target}\n")

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        folder = Path(job.folder)
        locks = _lock(job)
        try:
            unpack(package, folder / "source")
            file = folder / "script.sh"
            file.touch(mode=0o600)  # the overrides of a job may have secrets
            file.write_text(self.text(job))
            with (folder / LOG).open("ab") as log:
                process = subprocess.Popen(
                    ["bash", str(folder / "script.sh")],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=locks,
                )
            return {
                "pid": str(process.pid),
                "started": str(psutil.Process(process.pid).create_time()),
            }
        finally:
            for lock in locks:
                os.close(lock)

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
        deadline = time.monotonic() + _KILL_S
        while _process(job) is not None:
            if time.monotonic() > deadline:
                raise JobError(
                    f"{job.name}: process {job.handle['pid']} does not end after SIGKILL"
                )
            time.sleep(0.1)


def _gpus(job: Job) -> list[str]:
    return [one.strip() for one in job.target.split(",")] if job.target else []


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


def _lock(job: Job) -> list[int]:
    """Lock the job's GPUs.

    Raises:
        ConfigError: another job holds a lock, which the message names, or it cannot be opened.
    """
    locks: list[int] = []
    for gpu in _gpus(job):
        path = Path(tempfile.gettempdir(), f"coding-model-gpu-{gpu}.lock")
        try:
            lock = open_lock(path, 0o666)
        except OSError as error:
            for one in locks:
                os.close(one)
            raise ConfigError(
                f"{path}: the lock of GPU {gpu} cannot be opened ({error.strerror}); have its owner "
                "remove it"
            ) from error
        locks.append(lock)
        with suppress(PermissionError):  # another user's file
            os.fchmod(lock, 0o666)  # despite the umask: other users' jobs must open it
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 200, 0).decode(errors="replace").strip() or "another job"
            for one in locks:
                os.close(one)
            raise ConfigError(
                f"--gpus={job.target}: GPU {gpu} is in use by the local job {holder}; choose others, or "
                "wait for it (`jobs list`)"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{job.name}\n".encode(), 0)
    return locks
