"""Ray's client and a head in memory: what goes wrong between the two."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import ray
import requests
import responses

from coding_model_project.errors import ConfigError, JobError
from coding_model_project.launch.jobs import ray_jobs
from coding_model_project.launch.jobs.base import Evaluation, JobState
from coding_model_project.launch.jobs.ray_jobs import RayBackend
from tests.tables import tables
from tests.unit.launch.jobs.conftest import make_job

HEAD = "http://head:8265"
Reply = tuple[int, dict[str, str], str | bytes]


def reply(status: int, content: object) -> Reply:
    text = content if isinstance(content, str) else json.dumps(content)
    return status, {}, text


@dataclass
class Head:
    """Answers as the dashboard of Ray 2.60 does."""

    version: str = ray.__version__
    token: str = ""
    jobs: dict = field(default_factory=dict)
    packages: dict = field(default_factory=dict)
    posts: int = 0

    def __call__(self, request: requests.PreparedRequest) -> Reply:
        method, path = request.method, request.path_url
        given = request.headers.get("authorization")
        if self.token and given is None:
            return reply(401, "Unauthorized: Missing authentication token")
        if self.token and given != f"Bearer {self.token}":
            return reply(403, "Forbidden: Invalid authentication token")
        if path == "/api/version":
            return reply(200, {"version": "4", "ray_version": self.version})
        if path.startswith("/api/packages/gcs/"):
            name = path.rpartition("/")[2]
            if method == "PUT":
                self.packages[name] = request.body
            return reply(200 if name in self.packages else 404, "")
        if method == "POST" and path == "/api/jobs/":
            return self._post(json.loads(request.body or ""))
        name = path.split("/")[3]
        if name not in self.jobs:
            return reply(404, f"Job {name} does not exist")
        if path.endswith("/logs"):
            return reply(200, {"logs": "said\n"})
        if path.endswith("/stop"):
            return self._stop(name)
        if method == "DELETE":
            del self.jobs[name]
            return reply(200, {"deleted": True})
        return reply(200, {"type": "SUBMISSION", "entrypoint": "python", **self.jobs[name]})

    def _post(self, given: dict) -> Reply:
        self.posts += 1
        self.jobs[given["submission_id"]] = {"status": "RUNNING", **given}
        return reply(200, {"job_id": "1", "submission_id": given["submission_id"]})

    def _stop(self, name: str) -> Reply:
        self.jobs[name]["status"] = "STOPPED"
        return reply(200, {"stopped": True})


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://elsewhere:1")  # the option wins
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))


@pytest.fixture
def serve():
    """Return a function that lets a head answer every request to `HEAD`."""
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:

        def listen(head: Callable[[requests.PreparedRequest], Reply], **options) -> RayBackend:
            for method in ("GET", "POST", "PUT", "DELETE"):
                mock.remove(method, re.compile(f"{HEAD}/.*"))
                mock.add_callback(method, re.compile(f"{HEAD}/.*"), head)
            return RayBackend(address=HEAD, **options)

        yield listen


@pytest.fixture
def package(tmp_path) -> Path:
    (tmp_path / "p.zip").write_bytes(b"zip")
    return tmp_path / "p.zip"


def test_a_job_goes_up_with_its_package_and_its_resources(job, package, serve):
    head = Head()
    backend = serve(head, driver_cpus=2, resource={"driver": 1}, env={"A": "b"})
    backend.check(job)
    assert backend.state(job) is JobState.unknown
    assert (backend.log(job), backend.ask_to_stop(job)) == (b"", False)
    backend.submit(job, package)
    sent = head.jobs["sft-1"]
    (name,) = head.packages
    assert head.packages[name] == b"zip"
    assert sent["runtime_env"]["working_dir"] == f"gcs://{name}"
    assert sent["runtime_env"]["env_vars"]["A"] == "b"
    assert (sent["entrypoint_num_cpus"], sent["entrypoint_resources"]) == (2, {"driver": 1})
    assert sent["entrypoint"].endswith(f"exec {job.command}")
    backend.submit(make_job(package.parent, name="sft-2"), package)
    assert len(head.packages) == 1


def test_a_request_that_the_head_rejects_is_one_line(job, package, serve):
    class Strict(Head):
        def _post(self, given):
            return reply(400, "Traceback (most recent call last):\nValueError: no such resource\n")

    with pytest.raises(ConfigError, match=r"--address=http://head:8265: 400, ValueError: no such"):
        serve(Strict()).submit(job, package)


@pytest.mark.parametrize(
    ("token", "message"),
    [(None, r"RAY_AUTH_TOKEN=….*is not set"), ("old", r"RAY_AUTH_TOKEN=….*has expired")],
)
def test_a_token_that_is_missing_or_expired_is_named_and_not_shown(
    job, monkeypatch, serve, token, message
):
    if token is not None:
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    with pytest.raises(ConfigError, match=message) as caught:
        serve(Head(token="new")).check(job)
    assert "old" not in str(caught.value)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    Path(os.environ["RAY_AUTH_TOKEN_PATH"]).write_text("new\n")
    serve(Head(token="new")).check(job)


def test_another_version_of_ray_is_refused_unless_it_is_asked_for(job, serve):
    with pytest.raises(ConfigError, match=r"runs Ray 2\.9\.3, expected .*--any-version"):
        serve(Head(version="2.9.3")).check(job)
    serve(Head(version="2.9.3"), any_version=True).check(job)


def test_an_unreachable_head_is_one_line_with_a_way_out(job):
    with pytest.raises(JobError, match=r"--address=http://127\.0\.0\.1:9: .*refused.*8265"):
        RayBackend(address="http://127.0.0.1:9").check(job)
    with pytest.raises(ConfigError, match="--address: required with --backend ray"):
        RayBackend().check(job)
    for address in ("head:8265", "ray://head:10001", "http://", "auto"):
        with pytest.raises(ConfigError, match="expected the URL"):
            RayBackend(address=address).check(job)


@pytest.mark.parametrize("answer", [(200, "<html>"), (200, {"a": 1}), (404, "no"), (500, "no")])
def test_another_server_is_not_taken_for_a_head(job, serve, answer):
    with pytest.raises(ConfigError, match="is not a Ray dashboard"):
        serve(lambda _: reply(*answer)).check(job)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"overrides": ("a=b",)}, "hardware=: not set"),
        ({"run_dir": "outputs/a"}, r"coding\.run_dir=outputs/a: expected an absolute path"),
        ({"overrides": ("hardware=gpu_1x",)}, "--driver-gpus=0: recipes.sft trains in"),
        ({"evaluation": Evaluation(gpus=1)}, "--driver-gpus=0: the evaluation"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_sent(tmp_path, serve, fields, message):
    head = Head()
    with pytest.raises(ConfigError, match=message):
        serve(head).check(make_job(tmp_path, **fields))
    assert head.posts == 0


def test_the_driver_keeps_a_gpu_beside_the_evaluation(tmp_path, serve):
    """`beside` would refuse the split, but only once the job runs."""
    job = make_job(tmp_path, evaluation=Evaluation(gpus=1))
    with pytest.raises(ConfigError, match="one must be left; give --driver-gpus 2"):
        serve(Head(), driver_gpus=1).check(job)
    serve(Head(), driver_gpus=2).check(job)
    serve(Head()).check(make_job(tmp_path, evaluation=Evaluation(gpus=0)))


@pytest.mark.parametrize(
    ("status", "code", "state"),
    tables("launch")["ray states"],
)
def test_rays_states_are_ours(job, serve, status, code, state):
    ended = {"status": status, "driver_exit_code": code, "message": "why"}
    backend = serve(Head(jobs={"sft-1": ended}))
    assert backend.state(job) == state
    if state == JobState.failed:
        assert b"[ray: why]" in backend.log(job)


def running(**fields: object) -> dict:
    where = {"driver_node_id": "n1", "runtime_env": {"working_dir": "gcs://_ray_pkg_1.zip"}}
    return {"status": "RUNNING", **where, **fields}


@pytest.mark.parametrize(
    ("ended", "saves"),
    [
        ({"status": "SUCCEEDED"}, True),
        ({"status": "FAILED", "driver_exit_code": 1}, False),
        ({"status": "FAILED", "driver_exit_code": 3}, None),
    ],
)
def test_a_run_is_asked_to_stop_on_its_drivers_node(job, serve, ended, saves):
    class Asked(Head):
        def _post(self, given):
            assert given["entrypoint"].endswith(f"runs stop {job.run_dir}")
            assert given["entrypoint_label_selector"] == {"ray.io/node-id": "n1"}
            assert given["runtime_env"]["working_dir"] == "gcs://_ray_pkg_1.zip"
            answer = super()._post(given)
            self.jobs[given["submission_id"]] |= ended
            return answer

    head = Asked(jobs={"sft-1": running()})
    if saves is None:
        with pytest.raises(JobError, match=r"could not be asked to stop \(said\).*--now"):
            serve(head).ask_to_stop(job)
    else:
        assert serve(head).ask_to_stop(job) is saves
    assert list(head.jobs) == ["sft-1"]


def test_a_job_without_a_place_cannot_be_stopped(job, serve, monkeypatch):
    class Queue(Head):
        def _stop(self, name):
            return reply(200, {"stopped": False})

    head = Head(jobs={"sft-1": running()})
    serve(head).kill(job)
    assert head.jobs["sft-1"]["status"] == "STOPPED"
    monkeypatch.setattr(ray_jobs, "_PENDING_STOP_S", 0.0)
    with pytest.raises(JobError, match="waits for resources"):
        serve(Queue(jobs={"sft-1": running(status="PENDING")})).kill(job)


def test_a_package_that_ray_refuses(job, serve, package, monkeypatch):
    monkeypatch.setattr(ray_jobs, "_LARGEST", 2)
    with pytest.raises(ConfigError, match="gitignore"):
        serve(Head()).submit(job, package)


def test_the_python_of_a_node_is_checked_before_the_recipe(job):
    words = shlex.split(RayBackend(address=HEAD).text(job))
    assert words[:2] == ["python", "-c"]
    code = words[2]
    told = code.replace("sys.version_info[:2]", "(3, 9)")
    with pytest.raises(SystemExit, match=r"python=3\.9 on this node, expected 3\.11"):
        exec(told)
    with pytest.raises(SystemExit) as caught:
        exec(code)
    assert caught.value.code is None
