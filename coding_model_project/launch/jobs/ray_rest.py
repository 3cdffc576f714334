"""Jobs on a Ray cluster, over the dashboard's REST API; this machine does not need Ray.

The cluster's environment must have this project's requirements. The job runs the submitted source, which
is uploaded as a `working_dir` package named by the hash of its content.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import stamina

from coding_model_project import http
from coding_model_project.errors import ConfigError, JobError
from coding_model_project.launch.jobs.base import (
    Job,
    JobState,
    SubmissionUnknown,
    require_hardware,
    state_of_exit,
)
from coding_model_project.launch.jobs.command import words

RAY = "2.60.0"
"""The version that requirements/ pins."""
TOKEN = "RAY_AUTH_TOKEN"
"""Ray's variable for the token of a head with authentication; the next two follow Ray's rules too."""
_TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"
_TOKEN_FILE = "~/.ray/auth_token"

_SUBMISSION = "coding_submission"
_IN_DRIVER = ("sft", "dpo")
"""Recipes that train in the job's driver; the others train in Ray workers."""
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_UPLOAD_S = 600.0
_LARGEST = 100 << 20
"""Bytes of the largest package that a head takes (`RAY_RUNTIME_ENV_MAX_PACKAGE_SIZE`'s default)."""
_ATTEMPTS, _PAUSE_S = 3, 0.5
_STOP_S = 90.0
_KILL_WAIT_S = 60
_PENDING_STOP_S = 10.0
_PYTHON = (
    "import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] < (3, 13) else "
    "'error: python=%d.%d on this node, expected 3.11 or 3.12; start Ray in such an environment'"
    " % sys.version_info[:2])"
)
_STATES = {
    "PENDING": JobState.pending,
    "RUNNING": JobState.running,
    "SUCCEEDED": JobState.finished,
    "STOPPED": JobState.stopped,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RayBackend:
    """A back end for Ray's Jobs API at one address; fields that only `submit` needs have defaults."""

    address: str
    driver_cpus: float = 1
    """CPUs reserved for the driver, so that it does not run on a head started with 0 CPUs."""
    driver_gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    any_version: bool = False
    transport: httpx.BaseTransport | None = None

    def check(self, job: Job) -> None:
        require_hardware(job)
        if not job.run_dir.startswith("/"):
            raise ConfigError(
                f"coding.run_dir={job.run_dir}: expected an absolute path on the cluster's shared disk; "
                "a relative one lies in the package's folder, which Ray deletes"
            )
        on_gpus = "hardware=cpu" not in job.overrides
        if job.recipe in _IN_DRIVER and on_gpus and not self.driver_gpus:
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
        version = self._json("GET", "/api/version").get("ray_version", "unknown")
        if _minor(version) != _minor(RAY) and not self.any_version:
            raise ConfigError(
                f"--address={self.address}: the head runs Ray {version}, expected {RAY}; "
                f"install ray=={RAY} on the cluster, or give --any-version"
            )

    def text(self, job: Job) -> str:
        return _entrypoint(words(job, "python"))

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        uri = self._upload(package)
        submission = secrets.token_hex(8)
        environment = {
            # Without this, Ray rejects a variable that both the job and verl set.
            "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
            "RAY_JOB_STOP_WAIT_TIME_S": str(_KILL_WAIT_S),
            **self.environment,
        }
        request = {
            "submission_id": job.name,
            "entrypoint": self.text(job),
            "runtime_env": {"working_dir": uri, "env_vars": environment},
            "metadata": {_SUBMISSION: submission, "recipe": job.recipe},
            "entrypoint_num_cpus": self.driver_cpus,
            "entrypoint_num_gpus": self.driver_gpus,
            "entrypoint_resources": dict(self.resources),
        }
        self._post_once(request, submission)
        return {"submission_id": job.name, "working_dir": uri}

    def state(self, job: Job) -> JobState:
        return _state(self._info(job.name))

    def log(self, job: Job) -> bytes:
        info = self._info(job.name)
        if info is None:
            return b""
        text = self._json("GET", f"/api/jobs/{job.name}/logs").get("logs") or ""
        if info["status"] == "FAILED" or not (text or info["status"] == "RUNNING"):
            text += f"[ray: {info.get('message') or info['status'].lower()}]\n"
        return text.encode()

    def ask_to_stop(self, job: Job) -> bool:
        """Run a job on the driver's node that touches the attempt's stop file.

        Ray's own stop would send SIGTERM to every process of the job at once, including the workers.
        """
        info = self._info(job.name)
        if info is None or job.recipe == "baseline":  # an evaluation resumes from any sample
            return False
        asking = f"{job.name}-stop-{secrets.token_hex(2)}"
        request = {
            "submission_id": asking,
            "entrypoint": shlex.join(
                ["python", "-m", "coding_model_project", "runs", "stop", job.run_dir]
            ),
            "runtime_env": {"working_dir": info["runtime_env"]["working_dir"]},
            "metadata": {_SUBMISSION: asking},
            "entrypoint_num_cpus": 0,
            "entrypoint_label_selector": {"ray.io/node-id": info["driver_node_id"]},
        }
        self._post_once(request, asking)
        code = self._exit_code(asking)
        output = self._json("GET", f"/api/jobs/{asking}/logs").get("logs", "").strip()
        self._request("DELETE", f"/api/jobs/{asking}")
        if code not in (0, 1):
            last = output.splitlines()[-1] if output else f"exit code {code}"
            raise JobError(
                f"{job.name}: the run could not be asked to stop ({last}); it still runs. `jobs stop "
                "--now` ends it without a checkpoint"
            )
        return code == 0

    def kill(self, job: Job) -> None:
        state = _state(self._info(job.name))
        if state.ended:
            return
        self._json("POST", f"/api/jobs/{job.name}/stop")
        if state is not JobState.pending:
            return
        until = time.monotonic() + _PENDING_STOP_S
        while not _state(self._info(job.name)).ended:
            if time.monotonic() > until:
                raise JobError(
                    f"{job.name}: waits for resources, and Ray cannot stop a job that has no place yet; "
                    "Ray fails it after RAY_JOB_START_TIMEOUT_SECONDS (900), or `jobs stop` ends it "
                    "once it runs"
                )
            time.sleep(_PAUSE_S)

    def _post_once(self, request: Mapping[str, Any], submission: str) -> None:
        """Submit a job; without a reply, check whether the request arrived before retrying.

        Raises:
            ConfigError: another job has the name, or Ray rejects the request.
            JobError: all retries failed, and the job was not submitted.
            SubmissionUnknown: the head stopped answering during the submission.
        """
        name, fault = request["submission_id"], None
        for attempt in range(_ATTEMPTS):
            time.sleep(attempt * _PAUSE_S)
            try:
                answer = self._request("POST", "/api/jobs/", json=request)
            except JobError as error:
                fault = error
            else:
                if answer.is_success:
                    return
                fault = JobError(f"{self._where}: {_last_line(answer)}")
                if (
                    answer.status_code == httpx.codes.BAD_REQUEST
                    and "already exists" not in answer.text
                ):
                    raise ConfigError(str(fault))
            try:
                info = self._info(name)
            except JobError as error:
                raise SubmissionUnknown(
                    f"{self._where}: no answer while {name} was submitted ({fault}); `jobs list` shows "
                    "whether it runs once the head is back"
                ) from error
            if info is not None:
                if (info.get("metadata") or {}).get(_SUBMISSION) == submission:
                    return  # only the reply was lost
                raise ConfigError(
                    f"--name={name}: the cluster has a job of this name; choose another"
                )
        raise JobError(f"{fault}; the job was not submitted")

    def _upload(self, package: Path) -> str:
        """Upload a package unless the cluster has it; return its URI."""
        content = package.read_bytes()
        if len(content) > _LARGEST:
            raise ConfigError(
                f"{self._where}: the package has {len(content) / 2**20:.0f} MiB, and Ray takes "
                f"{_LARGEST >> 20} at most; add large files to .gitignore, or put them on the shared disk"
            )
        name = f"_ray_pkg_{hashlib.sha256(content).hexdigest()[:32]}.zip"
        path = f"/api/packages/gcs/{name}"
        if self._request("GET", path).status_code == httpx.codes.NOT_FOUND:
            answer = self._request("PUT", path, content=content, timeout=_UPLOAD_S)
            if not answer.is_success:
                size = f"{len(content) / 1e6:.1f} MB"
                raise JobError(
                    f"{self._where}: rejects the package of {size} ({_last_line(answer)})"
                )
        return f"gcs://{name}"

    def _exit_code(self, name: str) -> int | None:
        """Wait for a short job, and return its exit code; None if it has none or does not end."""
        deadline = time.monotonic() + _STOP_S
        while time.monotonic() < deadline:
            info = self._info(name)
            if info is not None and info["status"] in ("SUCCEEDED", "FAILED", "STOPPED"):
                return 0 if info["status"] == "SUCCEEDED" else info.get("driver_exit_code")
            time.sleep(0.5)
        return None

    def _info(self, name: str) -> dict[str, Any] | None:
        answer = self._request("GET", f"/api/jobs/{name}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        return self._checked(answer).json()

    def _json(self, method: str, path: str) -> dict[str, Any]:
        try:
            return self._checked(self._request(method, path)).json()
        except ValueError as error:
            raise self._no_ray() from error

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code == httpx.codes.NOT_FOUND and not answer.url.path.startswith(
            "/api/jobs/"
        ):
            raise self._no_ray()
        if not answer.is_success:
            raise JobError(f"{self._where}: {answer.status_code}, {_last_line(answer)}")
        return answer

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send one request.

        Raises:
            ConfigError: the address is not a URL, or the token is rejected.
            JobError: the head does not answer.
        """
        token = _token()
        attempts = _ATTEMPTS if method == "GET" else 1  # only GET is safe to retry
        try:
            with httpx.Client(
                base_url=self.address,
                headers=http.bearer(token),
                timeout=_TIMEOUT,
                transport=self.transport,
            ) as client:
                ask = stamina.retry(on=httpx.TimeoutException, attempts=attempts, timeout=None)
                answer = ask(client.request)(method, path, **options)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ConfigError(
                f"--address={self.address}: expected the URL of the head's dashboard, as in http://HEAD:8265"
            ) from error
        except httpx.TransportError as error:
            raise JobError(
                f"{self._where}: no answer ({http.reason(error)}); give the URL of the head's dashboard, "
                "which listens on port 8265 of localhost unless `ray start` has --dashboard-host"
            ) from error
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            how = "has expired or is another cluster's" if token else "is not set"
            raise ConfigError(
                f"{TOKEN}=…: the head at {self.address} refuses the request ({answer.status_code}), the "
                f"token {how}; set it to what `ray get-auth-token` prints on the head"
            )
        return answer

    def _no_ray(self) -> ConfigError:
        return ConfigError(
            f"{self._where}: answers, but is not a Ray dashboard; give the URL of the head's dashboard "
            "(port 8265 by default), and install ray[default] on the head"
        )

    @property
    def _where(self) -> str:
        return f"--address={self.address}"


def _token() -> str | None:
    """Return the token that Ray's own client would send; None if none is configured."""
    if given := http.secret_of(TOKEN):
        return given
    file = Path(os.environ.get(_TOKEN_PATH, _TOKEN_FILE)).expanduser()
    return http.secret_of(TOKEN, file.read_text()) if file.is_file() else None


def _entrypoint(command: list[str]) -> str:
    """Return a job's shell command, which checks the Python version and then execs the recipe."""
    return f"python -c {shlex.quote(_PYTHON)} && exec {shlex.join(command)}"


def _state(info: Mapping[str, Any] | None) -> JobState:
    if info is None:
        return JobState.unknown
    if info["status"] == "FAILED" and (code := info.get("driver_exit_code")) is not None:
        return state_of_exit(code)
    return _STATES.get(info["status"], JobState.failed)


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _last_line(answer: httpx.Response) -> str:
    lines = [line.strip() for line in answer.text.splitlines() if line.strip()]
    return lines[-1] if lines else answer.reason_phrase
