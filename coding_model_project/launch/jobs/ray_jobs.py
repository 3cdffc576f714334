"""Jobs on a Ray cluster, by Ray's own client (the extra `ray`).

The cluster's environment must have this project's requirements. The job runs the submitted source, which
the client uploads as a `working_dir` package named by the hash of its content.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import ray
import requests
from ray.dashboard.modules import dashboard_sdk
from ray.dashboard.modules.job.pydantic_models import JobDetails
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient

from coding_model_project import http
from coding_model_project.errors import ConfigError, JobError
from coding_model_project.launch.jobs.base import (
    IN_DRIVER,
    Job,
    JobState,
    RayOptions,
    require_hardware,
    state_of_exit,
)

ADDRESS = "RAY_API_SERVER_ADDRESS"
TOKEN = "RAY_AUTH_TOKEN"
"""Ray's variable for the token of a head with authentication; the next two follow Ray's rules too."""
_TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"
_TOKEN_FILE = "~/.ray/auth_token"

_CONNECT_S, _ANSWER_S = 10.0, 60.0
_LARGEST = 100 << 20
"""Bytes of the largest package that a head takes (`RAY_RUNTIME_ENV_MAX_PACKAGE_SIZE`'s default)."""
_POLL_S = 0.5
_STOP_S = 90.0
_KILL_WAIT_S = 60
_PENDING_STOP_S = 10.0
_PYTHON = (
    "import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] < (3, 13) else "
    "'error: python=%d.%d on this node, expected 3.11 or 3.12; start Ray in such an environment'"
    " % sys.version_info[:2])"
)
_STATES = {
    JobStatus.PENDING: JobState.pending,
    JobStatus.RUNNING: JobState.running,
    JobStatus.SUCCEEDED: JobState.finished,
    JobStatus.STOPPED: JobState.stopped,
}

dashboard_sdk.logger.setLevel(logging.WARNING)  # it logs each upload


@dataclass(frozen=True, slots=True, kw_only=True)
class RayBackend(RayOptions):
    """A back end for Ray's Jobs API at one address."""

    def check(self, job: Job) -> None:
        if not self.address:
            raise ConfigError("--address: required with --backend ray")
        require_hardware(job)
        if not job.run_dir.startswith("/"):
            raise ConfigError(
                f"coding.run_dir={job.run_dir}: expected an absolute path on the cluster's shared disk; "
                "a relative one lies in the package's folder, which Ray deletes"
            )
        on_gpus = "hardware=cpu" not in job.overrides
        if job.recipe in IN_DRIVER and on_gpus and not self.driver_gpus:
            raise ConfigError(
                f"--driver-gpus=0: recipes.{job.recipe} trains in the job's driver; give it GPUs, as in "
                "--driver-gpus 1"
            )
        if job.evaluation is not None and job.evaluation.gpus >= max(1, self.driver_gpus):
            raise ConfigError(
                f"--driver-gpus={self.driver_gpus:g}: the evaluation takes {job.evaluation.gpus} of the "
                f"driver's GPUs, and one must be left; give --driver-gpus {job.evaluation.gpus + 1}, or "
                "omit --eval-gpus to evaluate on all of them"
            )
        version = _Client(self.address).version
        if version.split(".")[:2] != ray.__version__.split(".")[:2] and not self.any_version:
            raise ConfigError(
                f"--address={self.address}: the head runs Ray {version}, expected {ray.__version__}; "
                f"install ray=={ray.__version__} on the cluster, or give --any-version"
            )

    def text(self, job: Job) -> str:
        return f"python -c {shlex.quote(_PYTHON)} && exec {shlex.join(job.words('python'))}"

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        if (size := package.stat().st_size) > _LARGEST:
            raise ConfigError(
                f"--address={self.address}: the package has {size / 2**20:.0f} MiB, and Ray takes "
                f"{_LARGEST >> 20} at most; add large files to .gitignore, or put them on the shared disk"
            )
        environment = {
            # Without this, Ray rejects a variable that both the job and verl set.
            "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
            "RAY_JOB_STOP_WAIT_TIME_S": str(_KILL_WAIT_S),
            **self.env,
        }
        _Client(self.address).submit_job(
            submission_id=job.name,
            entrypoint=self.text(job),
            runtime_env={"working_dir": str(package), "env_vars": environment},
            metadata={"recipe": job.recipe},
            entrypoint_num_cpus=self.driver_cpus,
            entrypoint_num_gpus=self.driver_gpus,
            entrypoint_resources=self.resource,
        )
        return {}

    def state(self, job: Job) -> JobState:
        return _state(_Client(self.address).find(job.name))

    def log(self, job: Job) -> bytes:
        client = _Client(self.address)
        if (info := client.find(job.name)) is None:
            return b""
        text = client.get_job_logs(job.name) or ""
        if info.status == JobStatus.FAILED or not (text or info.status == JobStatus.RUNNING):
            text += f"[ray: {info.message or info.status.lower()}]\n"
        return text.encode()

    def ask_to_stop(self, job: Job) -> bool:
        """Run a job on the driver's node that touches the attempt's stop file.

        Ray's own stop would send SIGTERM to every process of the job at once, including the workers.
        """
        client = _Client(self.address)
        info = client.find(job.name)
        if info is None or job.recipe == "baseline":  # an evaluation resumes from any sample
            return False
        asking = f"{job.name}-stop-{secrets.token_hex(2)}"
        client.submit_job(
            submission_id=asking,
            entrypoint=shlex.join(
                ["python", "-m", "coding_model_project", "runs", "stop", job.run_dir]
            ),
            runtime_env={"working_dir": (info.runtime_env or {})["working_dir"]},
            entrypoint_label_selector={"ray.io/node-id": info.driver_node_id or ""},
        )
        _wait(lambda: client.get_job_status(asking).is_terminal(), _STOP_S)
        told: Any = client.get_job_info(asking)
        lines = (client.get_job_logs(asking) or "").split("\n")
        if told.status.is_terminal():
            client.delete_job(asking)
        code = 0 if told.status == JobStatus.SUCCEEDED else told.driver_exit_code
        if code not in (0, 1):
            last = next(filter(None, reversed(lines)), f"exit code {code}")
            raise JobError(
                f"{job.name}: the run could not be asked to stop ({last}); it still runs. `jobs stop "
                "--now` ends it without a checkpoint"
            )
        return code == 0

    def kill(self, job: Job) -> None:
        client = _Client(self.address)
        state = _state(client.find(job.name))
        if state.ended:
            return
        client.stop_job(job.name)
        if state is not JobState.pending:
            return
        if not _wait(lambda: _state(client.find(job.name)).ended, _PENDING_STOP_S):
            raise JobError(
                f"{job.name}: waits for resources, and Ray cannot stop a job that has no place yet; Ray "
                "fails it after RAY_JOB_START_TIMEOUT_SECONDS (900), or `jobs stop` ends it once it runs"
            )


class _Client(JobSubmissionClient):
    """Ray's client with time limits, and with errors of one line.

    Every method raises `ConfigError` for a wrong address or token and a rejected request, and `JobError`
    if the head does not answer.
    """

    def __init__(self, address: str) -> None:
        self._where = f"--address={address}"
        url = urlsplit(address)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise self._no_url()
        os.environ[ADDRESS] = address  # Ray's client prefers it, and RAY_ADDRESS, to its argument
        try:
            super().__init__(address, headers=http.bearer(_token()))
        except (RuntimeError, ValueError, KeyError, requests.HTTPError) as error:
            raise ConfigError(
                f"{self._where}: answers, but is not a Ray dashboard; give the URL of the head's "
                "dashboard (port 8265 by default), and install ray[default] on the head"
            ) from error

    @property
    def version(self) -> str:
        """Return the head's version of Ray."""
        return self._server_ray_version or "unknown"

    def find(self, name: str) -> JobDetails | None:
        """Return what the head knows of a job; None if it knows none of this name."""
        try:
            return self.get_job_info(name)
        except _NoSuchJobError:
            return None

    def _do_request(self, method: str, endpoint: str, **options: Any) -> requests.Response:
        try:
            return super()._do_request(method, endpoint, **options, timeout=(_CONNECT_S, _ANSWER_S))
        except requests.exceptions.InvalidURL as error:
            raise self._no_url() from error
        except requests.RequestException as error:
            raise JobError(
                f"{self._where}: no answer ({http.reason(error)}); give the URL of the head's dashboard, "
                "which listens on port 8265 of localhost unless `ray start` has --dashboard-host"
            ) from error
        except AuthenticationError as error:
            how = "is not set" if _token() is None else "has expired or is another cluster's"
            raise ConfigError(
                f"{TOKEN}=…: the head at {self._address} refuses the request, the token {how}; set it "
                "to what `ray get-auth-token` prints on the head"
            ) from error

    def _raise_error(self, r: requests.Response) -> NoReturn:
        lines = [line.strip() for line in r.text.splitlines() if line.strip()]
        message = f"{self._where}: {r.status_code}, {lines[-1] if lines else r.reason}"
        if r.status_code == requests.codes.not_found:
            raise _NoSuchJobError(message)
        raise (ConfigError if r.status_code == requests.codes.bad_request else JobError)(message)

    def _no_url(self) -> ConfigError:
        return ConfigError(
            f"{self._where}: expected the URL of the head's dashboard, as in http://HEAD:8265"
        )


class _NoSuchJobError(JobError):
    """A job that the head does not know."""


def _token() -> str | None:
    """Return the token that Ray's own client would send; None if none is configured."""
    if given := http.secret_of(TOKEN):
        return given
    file = Path(os.environ.get(_TOKEN_PATH, _TOKEN_FILE)).expanduser()
    return http.secret_of(TOKEN, file.read_text()) if file.is_file() else None


def _wait(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait until it is so, for at most some seconds; return whether it is."""
    until = time.monotonic() + seconds
    while not (so := is_so()) and time.monotonic() <= until:
        time.sleep(_POLL_S)
    return so


def _state(info: JobDetails | None) -> JobState:
    if info is None:
        return JobState.unknown
    if info.status == JobStatus.FAILED and info.driver_exit_code is not None:
        return state_of_exit(info.driver_exit_code)
    return _STATES.get(info.status, JobState.failed)
