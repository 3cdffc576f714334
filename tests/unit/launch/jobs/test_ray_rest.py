"""Ray's REST interface, by a head in memory: what goes wrong between the two."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from coding_model_project.errors import ConfigError, JobError
from coding_model_project.launch.jobs import ray_rest
from coding_model_project.launch.jobs.base import Evaluation, JobState, SubmissionUnknown
from coding_model_project.launch.jobs.ray_rest import RAY, RayBackend
from tests.unit.launch.jobs.conftest import make_job


@dataclass
class Head:
    """Answers as the dashboard of Ray 2.60 does; `lose` says which answers do not arrive."""

    version: str = RAY
    token: str = ""
    jobs: dict = field(default_factory=dict)
    packages: dict = field(default_factory=dict)
    lose: list = field(default_factory=list)
    down_after_post: bool = False
    posts: int = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        method, path = request.method, request.url.path
        if self.token:
            if "authorization" not in request.headers:
                return httpx.Response(401, text="Unauthorized: Missing authentication token")
            if request.headers["authorization"] != f"Bearer {self.token}":
                return httpx.Response(403, text="Forbidden: Invalid authentication token")
        if self.down_after_post and self.posts:
            raise httpx.ConnectError("refused")
        if path == "/api/version":
            return httpx.Response(200, json={"version": "4", "ray_version": self.version})
        if path.startswith("/api/packages/gcs/"):
            name = path.rpartition("/")[2]
            if method == "PUT":
                self.packages[name] = request.content
            return httpx.Response(200 if name in self.packages else 404)
        if method == "POST" and path == "/api/jobs/":
            return self._post(json.loads(request.content))
        name = path.split("/")[3]
        if name not in self.jobs:
            return httpx.Response(404, text=f"Job {name} does not exist")
        if path.endswith("/logs"):
            return httpx.Response(200, json={"logs": "said\n"})
        if path.endswith("/stop"):
            self.jobs[name]["status"] = "STOPPED"
            return httpx.Response(200, json={"stopped": True})
        return httpx.Response(200, json=self.jobs[name])

    def _post(self, given: dict) -> httpx.Response:
        self.posts += 1
        how = self.lose.pop(0) if self.lose else None
        if how == "request":
            raise httpx.ConnectTimeout("timed out")
        if given["submission_id"] in self.jobs:
            return httpx.Response(400, text=f"ValueError: Job with {given} already exists.")
        self.jobs[given["submission_id"]] = {"status": "RUNNING", **given}
        if how == "answer":
            raise httpx.ReadTimeout("timed out")
        return httpx.Response(200, json={"submission_id": given["submission_id"]})


@pytest.fixture(autouse=True)
def _no_token(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))


@pytest.fixture
def package(tmp_path) -> Path:
    (tmp_path / "p.zip").write_bytes(b"zip")
    return tmp_path / "p.zip"


def backend(head: Head, **options) -> RayBackend:
    return RayBackend(address="http://head:8265", transport=httpx.MockTransport(head), **options)


def test_a_job_goes_up_with_its_package_and_its_resources(job, package):
    head = Head()
    ray = backend(head, driver_cpus=2, resources={"driver": 1}, environment={"A": "b"})
    ray.check(job)
    handle = ray.submit(job, package)
    sent = head.jobs["sft-1"]
    assert head.packages == {handle["working_dir"].removeprefix("gcs://"): b"zip"}
    assert sent["runtime_env"]["working_dir"] == handle["working_dir"]
    assert sent["runtime_env"]["env_vars"]["A"] == "b"
    assert (sent["entrypoint_num_cpus"], sent["entrypoint_resources"]) == (2, {"driver": 1})
    assert sent["entrypoint"].endswith(f"exec {job.command.replace('python -m', 'python -m')}")
    ray.submit(make_job(package.parent, name="sft-2"), package)
    assert len(head.packages) == 1


@pytest.mark.parametrize("lost", [["request"], ["answer"], ["request", "answer"]])
def test_a_submission_whose_answer_is_lost_is_not_sent_twice(job, package, lost):
    head = Head(lose=list(lost))
    backend(head).submit(job, package)
    assert list(head.jobs) == ["sft-1"]
    assert head.posts == (1 if lost == ["answer"] else 2)


def test_a_head_that_goes_away_meanwhile_leaves_the_state_open(job, package):
    head = Head(lose=["answer"], down_after_post=True)
    with pytest.raises(SubmissionUnknown, match=r"no answer while sft-1 .*jobs list"):
        backend(head).submit(job, package)


def test_a_head_that_never_takes_it_is_an_error_without_a_job(job, package):
    head = Head(lose=["request"] * 3)
    with pytest.raises(JobError, match="the job was not submitted"):
        backend(head).submit(job, package)
    assert head.jobs == {}


def test_a_name_that_the_cluster_knows_is_refused(job, package):
    head = Head()
    backend(head).submit(job, package)
    with pytest.raises(ConfigError, match="--name=sft-1: the cluster has a job of this name"):
        backend(head).submit(job, package)


@pytest.mark.parametrize(
    ("token", "message"),
    [(None, r"RAY_AUTH_TOKEN=….*\(401\).*is not set"), ("old", r"\(403\).*has expired")],
)
def test_a_token_that_is_missing_or_expired_is_named_and_not_shown(
    job, monkeypatch, token, message
):
    if token is not None:
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    with pytest.raises(ConfigError, match=message) as caught:
        backend(Head(token="new")).check(job)
    assert "old" not in str(caught.value)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    Path(os.environ["RAY_AUTH_TOKEN_PATH"]).write_text("new\n")
    backend(Head(token="new")).check(job)


def test_another_version_of_ray_is_refused_unless_it_is_asked_for(job):
    with pytest.raises(ConfigError, match=r"runs Ray 2\.9\.3, expected .*--any-version"):
        backend(Head(version="2.9.3")).check(job)
    backend(Head(version="2.9.3"), any_version=True).check(job)
    pinned = Path(__file__).parents[4] / "requirements" / "gpu.txt"
    assert f"ray=={RAY}\n" in pinned.read_text()


def test_an_unreachable_head_is_one_line_with_a_way_out(job):
    with pytest.raises(JobError, match=r"--address=http://127\.0\.0\.1:9: no answer .*8265"):
        RayBackend(address="http://127.0.0.1:9").check(job)
    with pytest.raises(ConfigError, match="expected the URL"):
        RayBackend(address="head:8265").check(job)


def test_another_server_is_not_taken_for_a_head(job):
    page = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>"))
    with pytest.raises(ConfigError, match="is not a Ray dashboard"):
        RayBackend(address="http://head", transport=page).check(job)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"overrides": ("a=b",)}, "hardware=: not set"),
        ({"run_dir": "outputs/a"}, r"coding\.run_dir=outputs/a: expected an absolute path"),
        ({"overrides": ("hardware=gpu_1x",)}, "--driver-gpus=0: recipes.sft trains in"),
        ({"evaluation": Evaluation(gpus=1)}, "--driver-gpus=0: the evaluation"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_sent(tmp_path, fields, message):
    head = Head()
    with pytest.raises(ConfigError, match=message):
        backend(head).check(make_job(tmp_path, **fields))
    assert head.posts == 0


def test_the_driver_keeps_a_gpu_beside_the_evaluation(tmp_path):
    """`beside` would refuse the split, but only once the job runs."""
    job = make_job(tmp_path, evaluation=Evaluation(gpus=1))
    with pytest.raises(ConfigError, match="one must be left; give --driver-gpus 2"):
        backend(Head(), driver_gpus=1).check(job)
    backend(Head(), driver_gpus=2).check(job)
    backend(Head()).check(make_job(tmp_path, evaluation=Evaluation(gpus=0)))


@pytest.mark.parametrize(
    ("status", "code", "state"),
    [
        ("PENDING", None, JobState.pending),
        ("SUCCEEDED", 0, JobState.finished),
        ("STOPPED", None, JobState.stopped),
        ("FAILED", 130, JobState.interrupted),
        ("FAILED", 2, JobState.failed),
        ("FAILED", 137, JobState.stopped),
        ("FAILED", None, JobState.failed),
    ],
)
def test_rays_states_are_ours(job, status, code, state):
    head = Head(jobs={"sft-1": {"status": status, "driver_exit_code": code, "message": "why"}})
    assert backend(head).state(job) is state
    if state is JobState.failed:
        assert b"[ray: why]" in backend(head).log(job)


def test_a_job_without_a_place_cannot_be_stopped(job, monkeypatch):
    class Queue(Head):
        def __call__(self, request):
            return httpx.Response(200, json={"stopped": False, "status": "PENDING"})

    monkeypatch.setattr(ray_rest, "_PENDING_STOP_S", 0.0)
    with pytest.raises(JobError, match="waits for resources"):
        backend(Queue()).kill(job)


def test_a_package_that_ray_refuses(job, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_rest, "_LARGEST", 10)
    (tmp_path / "package.zip").write_bytes(b"x" * 11)
    with pytest.raises(ConfigError, match="gitignore"):
        backend(Head()).submit(job, tmp_path / "package.zip")


def test_a_job_that_the_head_does_not_know(job):
    assert backend(Head()).state(job) is JobState.unknown
    assert backend(Head()).ask_to_stop(job) is False


def test_the_python_of_a_node_is_checked_before_the_recipe():
    code = re.search(
        r"python -c '(.*?)' && exec", ray_rest._entrypoint(["x"]).replace("'\"'\"'", '"')
    )
    assert code is not None
    told = code[1].replace("sys.version_info[:2]", "(3, 9)")
    with pytest.raises(
        SystemExit, match=r"error: python=3\.9 on this node, expected 3\.11 or 3\.12"
    ):
        exec(told)
    with pytest.raises(SystemExit) as caught:
        exec(code[1])
    assert caught.value.code is None
