"""The job log: a record per job, whole at any time, and a table for people."""

import multiprocessing
import stat
from dataclasses import replace

import pytest

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.launch.jobs.base import Evaluation, JobState, check_name, new_name
from coding_model_project.launch.jobs.job_log import JobLog, table
from tests.unit.launch.jobs.conftest import make_job


@pytest.fixture
def log(tmp_path):
    return JobLog(tmp_path / "jobs")


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
