"""Jobs that are followed, stopped and fetched, on a back end in memory; and the job log."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import fsspec
import pytest

from coding_model_project.cli import main
from coding_model_project.errors import (
    CodingModelError,
    ConfigError,
    DataError,
    JobError,
    StorageError,
)
from coding_model_project.launch.jobs import control
from coding_model_project.launch.jobs.base import Evaluation, Job, JobState, check_name, new_name
from coding_model_project.launch.jobs.control import JobLog, fetch, source_of, table
from coding_model_project.launch.jobs.source import read_source
from coding_model_project.runs.mirror import Mirror
from tests.unit.launch.jobs.conftest import make_job


class Clock:
    """A clock on which sleeping takes no time."""

    now = 0.0

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Replace the clock of `control`."""
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


# ── the job log: a record per job, whole at any time, and a table for people ──────────────────────


def test_a_job_is_read_back_as_it_was_written_by_its_user_alone(tmp_path, log):
    job = make_job(tmp_path, evaluation=Evaluation(gpus=1, arguments="--n 4"))
    log.add(job)
    log.note(job, handle={"id": "7"})
    ended = log.note(job, state=JobState.finished)
    assert (
        log.job(job.name)
        == ended
        == replace(job, handle={"id": "7"}, state=JobState.finished, ended=ended.ended)
    )
    assert ended.ended is not None
    assert stat.S_IMODE((log.folder / job.name).stat().st_mode) == 0o700


def test_a_name_is_taken_once_unless_it_was_refused(tmp_path, log):
    job = make_job(tmp_path)
    log.add(job)
    with pytest.raises(ConfigError, match="--name=sft-1: a job of this name"):
        log.add(job)
    log.note(job, state=JobState.refused)
    log.add(job)
    assert log.job("sft-1").state is JobState.unknown


def test_an_unknown_job_is_named_with_the_last_ones(tmp_path, log):
    log.add(make_job(tmp_path))
    with pytest.raises(ConfigError, match=r"nope: no such job .*sft-1.*jobs list"):
        log.job("nope")


def test_a_damaged_record_is_named(tmp_path, log):
    log.add(make_job(tmp_path))
    (log.folder / "sft-1" / "job.json").write_text('{"na')
    with pytest.raises(DataError, match=r"sft-1/job\.json: damaged"):
        log.jobs()


def _add(folder, name):
    try:
        JobLog(folder).add(make_job(folder, name=name))
    except ConfigError:
        return False
    return True


@pytest.mark.slow
def test_of_processes_that_take_a_name_at_once_one_gets_it(tmp_path):
    # A fork of a process with threads, as the tests' is, may wait for a lock for ever.
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        got = pool.starmap(_add, [(tmp_path, f"job-{n % 2}") for n in range(8)])
    assert sum(got) == 2
    assert {job.name for job in JobLog(tmp_path).jobs()} == {"job-0", "job-1"}


def test_the_table_is_markdown_with_newest_first(tmp_path, log):
    log.add(make_job(tmp_path, name="a", description="x | y"))
    log.add(make_job(tmp_path, name="b", patch="f" * 64))
    lines = table(log.jobs()).splitlines()
    assert lines[2].startswith("| b | unknown | `python -m recipes.sft hardware=cpu")
    assert "| ffffffffffff |" in lines[2]
    assert "x \\| y" in lines[3]


@pytest.mark.parametrize("name", ["", "-a", "a-", "a_b", "a b", "ä", "a" * 64, "a.b"])
def test_names_that_sagemaker_would_refuse_are_refused_everywhere(name):
    with pytest.raises(ConfigError, match="--name="):
        check_name(name)


def test_new_names_are_valid_and_say_nothing_on_request():
    for anonymous in (True, False):
        check_name(new_name("grpo", anonymous=anonymous))
    assert "grpo" in new_name("grpo", anonymous=False)
    assert "grpo" not in new_name("grpo", anonymous=True)
    assert new_name("grpo", anonymous=True) != new_name("grpo", anonymous=True)


# ── a run's folder from a shared path or its mirror ───────────────────────────────────────────────


FILES = ("run.json", "metrics.jsonl", "checkpoints/global_step_1/model.bin", "logs/a/console.log")


@pytest.fixture(params=["path", "mirror"])
def source(request, tmp_path):
    """Return the run's location, a shared folder or a URL, with a function that writes there."""
    if request.param == "path":
        place = str(tmp_path / "run")
        fs, base = fsspec.url_to_fs(place, auto_mkdir=True)
    else:
        place = f"memory://{tmp_path.name}/run"
        fs, base = fsspec.url_to_fs(place)
    write = lambda name, text: fs.pipe_file(f"{base}/{name}", text.encode())  # noqa: E731
    for name in FILES:
        write(name, json.dumps({"created": name}))
    return place, write


def test_a_run_is_copied_without_checkpoints_and_again_only_what_is_new(source, tmp_path):
    place, write = source
    done = fetch(place, tmp_path / "out", checkpoints=False)
    assert (done.copied, done.kept) == (3, 0)
    assert not (tmp_path / "out" / "checkpoints").exists()
    write("metrics.jsonl", "longer than it was")
    done = fetch(place, tmp_path / "out", checkpoints=True)
    assert (done.copied, done.kept) == (2, 2)
    assert (tmp_path / "out" / "metrics.jsonl").read_text() == "longer than it was"
    assert FILES[2] in (tmp_path / "out" / FILES[2]).read_text()


def test_a_run_that_is_nowhere_is_named_with_the_ways_out(tmp_path):
    with pytest.raises(ConfigError, match=r"coding\.run_dir=/not/here.*--from"):
        source_of(make_job(tmp_path, run_dir="/not/here"))
    with pytest.raises(ConfigError, match="nothing there yet"):
        fetch("memory://nothing", tmp_path / "out", checkpoints=False)


def test_from_names_another_place(tmp_path, capsys):
    JobLog(tmp_path / "jobs").add(make_job(tmp_path))
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "run.json").write_text("{}")
    given = ["--jobs", str(tmp_path / "jobs"), "--out", str(tmp_path / "out")]
    ended = main(["jobs", "fetch", "sft-1", "--from", str(tmp_path / "copy"), *given])
    assert ended == 0, capsys.readouterr().err
    assert (tmp_path / "out" / "run.json").exists()


def test_what_is_written_is_whole_when_the_copy_fails(tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("a", "b"):
        (run / name).write_text(name)
    real = fsspec.implementations.local.LocalFileSystem.get_file

    def full(self, path, target, **options):
        if path.endswith("/b"):
            raise OSError(28, "No space left on device")
        return real(self, path, target, **options)

    monkeypatch.setattr(fsspec.implementations.local.LocalFileSystem, "get_file", full)
    with pytest.raises(StorageError, match="disk is full"):
        fetch(str(run), tmp_path / "out", checkpoints=False)
    assert (tmp_path / "out" / "a").read_text() == "a"
    assert not (tmp_path / "out" / "b").exists()


def test_of_a_mirror_what_changed_is_copied(tmp_path):
    run, url = tmp_path / "run", f"memory://{tmp_path.name}/mirrored"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "rollouts.jsonl").write_text('{"step": 1}\n' * 30)
    mirror = Mirror(run, url, 1.0, ())
    mirror.sync()
    out = tmp_path / "out"
    done = fetch(url, out, checkpoints=False)
    assert (done.copied, done.kept) == (2, 0)
    assert (out / "rollouts.jsonl").read_text() == (run / "rollouts.jsonl").read_text()
    (run / "run.json").write_text("{ }")
    mirror.sync()
    done = fetch(url, out, checkpoints=False)
    assert (done.copied, done.kept) == (1, 1)


def test_another_runs_folder_is_not_written_over(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps({"created": name}))
        Mirror(tmp_path / name, f"memory://{tmp_path.name}/{name}", 1.0, ()).sync()
    with pytest.raises(ConfigError, match=r"--out=.*/b: contains another run; choose another"):
        fetch(f"memory://{tmp_path.name}/a", tmp_path / "b", checkpoints=False)
    assert "b" in (tmp_path / "b" / "run.json").read_text()


def test_a_change_is_copied_though_the_clock_of_the_source_is_behind(tmp_path):
    run, out = tmp_path / "run", tmp_path / "out"
    run.mkdir()
    (run / "heartbeat").write_text("1")
    fetch(str(run), out, checkpoints=False)
    (run / "heartbeat").write_text("2")
    hour_ago = time.time() - 3600
    os.utime(run / "heartbeat", (hour_ago, hour_ago))
    assert fetch(str(run), out, checkpoints=False).copied == 1
    assert (out / "heartbeat").read_text() == "2"


def test_a_store_that_cannot_be_used_is_one_line(tmp_path, monkeypatch):
    from s3fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    S3FileSystem.clear_instance_cache()
    with pytest.raises(ConfigError, match="no credentials found"):
        fetch("s3://bucket/run", tmp_path / "out", checkpoints=False)
    S3FileSystem.clear_instance_cache()
