"""Jobs that are followed and stopped, on a back end in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import httpx
import pytest

from coding_model_project.errors import JobError
from coding_model_project.launch.jobs import control
from coding_model_project.launch.jobs.base import Job, JobState
from coding_model_project.launch.jobs.job_log import JobLog
from coding_model_project.launch.jobs.ray_rest import RayBackend


@pytest.fixture
def log(tmp_path) -> JobLog:
    return JobLog(tmp_path / "log")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Replace the clock of `control`, so that sleeping takes no time."""

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    monkeypatch.setattr(control, "time", clock := Clock())
    return clock


@dataclass
class Ray:
    """A head that answers for one job, with a new status and log at each look at its status."""

    answers: list[tuple[str, str]]
    now: tuple[str, str] = field(default=("PENDING", ""))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/logs"):
            return httpx.Response(200, json={"logs": self.now[1]})
        self.now = self.answers.pop(0) if self.answers else self.now
        return httpx.Response(200, json={"status": self.now[0], "message": "Job has not started."})


def follow(job: Job, log: JobLog, answers: list[tuple[str, str]]) -> bytes:
    log.add(job)
    ray = RayBackend(address="http://head:8265", transport=httpx.MockTransport(Ray(answers)))
    return b"".join(control.follow(log.entry(job.name), ray, log))


def test_following_a_job_from_before_its_start_prints_all_of_its_output(job, log):
    pending, running = ("PENDING", ""), ("RUNNING", "")
    first, last = ("RUNNING", "step 1\n"), ("SUCCEEDED", "step 1\nstep 2\n")
    answers = [pending, pending, running, running, first, first, last, last]
    assert follow(job, log, answers) == b"step 1\nstep 2\n"


@dataclass
class Stubborn:
    """A back end whose job ends some time after it was killed."""

    clock: object
    ends_after_s: float = float("inf")
    killed_at: float | None = None

    def state(self, job: Job) -> JobState:
        if self.killed_at is None or self.clock.now < self.killed_at + self.ends_after_s:
            return JobState.running
        return JobState.stopped

    def kill(self, job: Job) -> None:
        self.killed_at = self.clock.now


def test_a_kill_is_given_the_time_that_ray_and_sagemaker_take(job, log, clock):
    log.add(job)
    backend = Stubborn(clock, ends_after_s=125)
    state = control.stop(log.entry(job.name), backend, log, wait_s=None, say=print)
    assert state is JobState.stopped


@pytest.mark.parametrize(("outage_s", "survives"), [(60, True), (600, False)])
def test_an_outage_of_a_minute_does_not_end_a_follow(job, log, clock, outage_s, survives):
    class Away(Stubborn):
        def state(self, job: Job) -> JobState:
            if 0 < clock.now < outage_s:
                raise JobError("Socket timed out")
            return JobState.running if clock.now < outage_s else JobState.finished

        def log(self, job: Job) -> bytes:
            return b"step 1\n"

    log.add(job)
    followed = control.follow(log.entry(job.name), Away(clock), log)
    if survives:
        assert b"".join(followed) == b"step 1\n"
    else:
        with pytest.raises(JobError, match="Socket timed out"):
            list(followed)


class Forgetful:
    """A back end without a record of any job."""

    def state(self, job: Job) -> JobState:
        return JobState.unknown


def test_a_job_that_its_back_end_has_forgotten_is_neither_followed_nor_stopped(job, log):
    log.add(job)
    message = "sft-1: the back end has no record of this job"
    with pytest.raises(JobError, match=message):
        list(control.follow(log.entry(job.name), Forgetful(), log))
    with pytest.raises(JobError, match=message):
        control.stop(log.entry(job.name), Forgetful(), log, wait_s=None, say=print)
