"""Jobs that are followed and stopped, on a back end in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coding_model_project.errors import CodingModelError, ConfigError, JobError
from coding_model_project.launch.jobs import control
from coding_model_project.launch.jobs.base import Job, JobState
from coding_model_project.launch.jobs.job_log import JobLog
from coding_model_project.launch.jobs.source import read_source


@pytest.fixture
def log(tmp_path) -> JobLog:
    return JobLog(tmp_path / "jobs")


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
class Remote:
    """A back end with a job whose state and output change at each look at its state."""

    answers: list[tuple[JobState, str]]
    now: tuple[JobState, str] = (JobState.pending, "")

    def state(self, job: Job) -> JobState:
        self.now = self.answers.pop(0) if self.answers else self.now
        return self.now[0]

    def log(self, job: Job) -> bytes:
        return self.now[1].encode()


def follow(job: Job, log: JobLog, answers: list[tuple[JobState, str]]) -> bytes:
    log.add(job)
    return b"".join(control.follow(job, Remote(answers), log))


def test_following_a_job_from_before_its_start_prints_all_of_its_output(job, log):
    pending, running = (JobState.pending, ""), (JobState.running, "")
    first, last = (JobState.running, "step 1\n"), (JobState.finished, "step 1\nstep 2\n")
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
    job = control.stop(job, backend, log, wait_s=None, say=print)
    assert job.state is JobState.stopped


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
    followed = control.follow(job, Away(clock), log)
    if survives:
        assert b"".join(followed) == b"step 1\n"
    else:
        with pytest.raises(JobError, match="Socket timed out"):
            list(followed)


def test_a_job_that_its_back_end_has_forgotten_is_neither_followed_nor_stopped(job, log):
    log.add(job)
    with pytest.raises(JobError, match="sft-1: the back end has no record"):
        list(control.follow(job, Lossy(), log))
    with pytest.raises(JobError, match="sft-1: the back end has no record"):
        control.stop(job, Lossy(), log, wait_s=None, say=print)


@dataclass
class Lossy:
    """A back end that starts a job, or does not, and answers with an error."""

    error: CodingModelError | None = None
    starts: bool = True
    then: CodingModelError | None = None
    """The error of every answer after the submission."""
    known: set[str] = field(default_factory=set)
    submitted: int = 0

    def check(self, job: Job) -> None:
        pass

    def submit(self, job: Job, package: Path) -> Mapping[str, str]:
        assert package.stat().st_size
        self.submitted += 1
        if self.starts:
            self.known.add(job.name)
        if self.error is not None:
            raise self.error
        return {"id": "7"}

    def state(self, job: Job) -> JobState:
        if self.submitted and self.then is not None:
            raise self.then
        return JobState.running if job.name in self.known else JobState.unknown


@pytest.mark.parametrize(
    "error",
    [JobError("no answer"), ConfigError("ResourceInUse: already exists")],
    ids=["the answer is lost", "the client repeats the request, whose name is then taken"],
)
def test_a_job_that_started_without_an_answer_is_not_started_again(job, log, repo, error):
    backend = Lossy(error)
    control.submit(backend, job, read_source(repo, max_mb=1), log)
    noted = log.job(job.name)
    assert (noted.state, noted.handle, backend.submitted) == (JobState.pending, {}, 1)


def test_a_job_that_did_not_start_leaves_its_name_free(job, log, repo):
    source = read_source(repo, max_mb=1)
    with pytest.raises(JobError, match="no answer; the job was not submitted: try again"):
        control.submit(Lossy(JobError("no answer"), starts=False), job, source, log)
    with pytest.raises(ConfigError, match=r"^bad partition$"):
        control.submit(Lossy(ConfigError("bad partition"), starts=False), job, source, log)
    assert log.job(job.name).state is JobState.refused
    control.submit(Lossy(), job, source, log)
    assert log.job(job.name).handle == {"id": "7"}


def test_a_back_end_that_goes_away_during_a_submission_leaves_the_state_open(job, log, repo):
    away = Lossy(JobError("no answer"), then=JobError("down"))
    with pytest.raises(JobError, match=r"no answer; `jobs list` shows whether sft-1 runs"):
        control.submit(away, job, read_source(repo, max_mb=1), log)
    assert log.job(job.name).state is JobState.unknown


def test_a_name_that_the_back_end_knows_is_refused_before_anything_is_sent(job, log, repo):
    backend = Lossy(known={"sft-1"})
    with pytest.raises(ConfigError, match="--name=sft-1: ray http://head:8265 has a job of this"):
        control.submit(backend, job, read_source(repo, max_mb=1), log)
    assert (backend.submitted, log.job(job.name).state) == (0, JobState.refused)
