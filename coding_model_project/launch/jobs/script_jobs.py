"""Jobs that are a shell script: detached processes on this machine's GPUs, and jobs under Slurm.

`job.sh` is the script's template. Slurm's nodes share a disk with this machine, a login node.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import jinja2
import psutil

from coding_model_project.contained import open_lock, unpack_zip
from coding_model_project.errors import ConfigError, JobError
from coding_model_project.launch.jobs.base import (
    IN_DRIVER,
    Job,
    JobState,
    LocalOptions,
    SlurmOptions,
    require_hardware,
    state_of_exit,
    value_of,
)
from coding_model_project.launch.jobs.beside import split

_LOG = "log.txt"
_EXIT = "exit_code"
_SCRIPT = "script.sh"
_TEMPLATE = Path(__file__).with_name("job.sh")


def script(
    job: Job, *, sbatch: Sequence[str] = (), several: bool = False, gpus: str | None = None
) -> str:
    """Return the script of a job that runs from the unpacked source in its folder.

    Args:
        sbatch: options of `sbatch`; with any, the script belongs to Slurm.
        several: whether Slurm allocates several nodes, on which the recipe needs a Ray cluster.
        gpus: value of CUDA_VISIBLE_DEVICES; None leaves it as the scheduler sets it.
    """
    folder = Path(job.folder)
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: shlex.quote(str(value)) if isinstance(value, Path) else value,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.from_string(_TEMPLATE.read_text()).render(
        sbatch=sbatch,
        several=several,
        gpus=gpus,
        cwd=Path(job.cwd),
        source=folder / "source",
        exit_file=folder / _EXIT,
        run_dir=Path(job.run_dir),
        python=Path(sys.executable),
        bin=Path(sys.executable).parent,
        recipe=job.recipe,
        command=shlex.join(job.words(sys.executable)),
        nnodes=value_of(job.overrides, "trainer.nnodes"),
    )


def write_script(job: Job, package: Path, text: str) -> Path:
    """Unpack the source into a job's folder, write its script there, and return the script's path."""
    folder = Path(job.folder)
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    unpack_zip(package, source)
    file = folder / _SCRIPT
    file.touch(mode=0o600)  # the overrides of a job may have secrets
    file.write_text(text)
    return file


def written_state(job: Job) -> JobState | None:
    """Return the state of a job from the exit code that its script wrote; None if it wrote none."""
    file = Path(job.folder, _EXIT)
    code = file.read_text().strip() if file.exists() else ""
    return state_of_exit(int(code)) if code else None


def written_log(_: object, job: Job) -> bytes:
    """Return a job's output so far: the method `log` of both back ends."""
    file = Path(job.folder, _LOG)
    return file.read_bytes() if file.exists() else b""


# ── on this machine ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBackend(LocalOptions):
    """A back end that runs each job as a detached process group with a lock on each of its GPUs.

    The locks are on files in the temporary folder, so they apply across all job logs of this machine.
    The kernel releases them when the job ends, however it ends.
    """

    log = written_log

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
            with Path(job.folder, _LOG).open("ab") as log:
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


# ── under Slurm ───────────────────────────────────────────────────────────────────────────────────────


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

    log = written_log

    def check(self, job: Job) -> None:
        require_hardware(job)
        wrong = next((one for one in self.sbatch if not one.startswith("--")), None)
        if wrong is not None:
            raise ConfigError(f"--sbatch={wrong}: expected an option of sbatch, as in --gres=gpu:8")
        if self._several and (job.recipe in IN_DRIVER or job.evaluation is not None):
            what = "--with-evaluation" if job.evaluation else f"recipes.{job.recipe}"
            raise ConfigError(
                f"--sbatch={self._several}: {what} uses the GPUs of one node; omit one of them"
            )
        _run("sbatch", "--version")

    @property
    def _several(self) -> str:
        """Return the option that asks for several nodes; empty if the job has one."""
        nodes = [one for one in self.sbatch if one.startswith("--nodes=")]
        return nodes[-1] if nodes and nodes[-1] not in ("--nodes=1", "--nodes=1-1") else ""

    def text(self, job: Job) -> str:
        log = f"{job.folder}/{_LOG}".replace("%", "%%")  # sbatch replaces %j and the like
        ours = (
            f"--job-name={job.name}",
            f"--output={shlex.quote(log)}",
            "--open-mode=append",
            f"--signal=B:TERM@{self.signal_s}",
            "--requeue",
        )
        return script(job, sbatch=(*ours, *self.sbatch), several=bool(self._several))

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
