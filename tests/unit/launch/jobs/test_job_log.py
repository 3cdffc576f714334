"""The job log: appended only, whole after a crash, a table for people."""

import multiprocessing
from dataclasses import replace

import pytest

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.launch.jobs.base import Evaluation, JobState
from coding_model_project.launch.jobs.job_log import JobLog, table
from coding_model_project.launch.jobs.names import check_name, new_name
from tests.unit.launch.jobs.conftest import make_job


def test_a_job_is_read_back_as_it_was_written(tmp_path):
    log = JobLog(tmp_path / "jobs")
    job = make_job(tmp_path, evaluation=Evaluation(gpus=1, arguments="--n 4"))
    log.add(job)
    log.note_handle(job, {"id": "7"})
    log.note_state(job.name, JobState.running)
    log.note_state(job.name, JobState.running)  # no news
    log.note_state(job.name, JobState.finished)
    entry = log.entry(job.name)
    assert entry.job == replace(job, handle={"id": "7"}) and entry.state is JobState.finished
    assert entry.ended is not None
    assert len((tmp_path / "jobs" / "jobs.jsonl").read_text().splitlines()) == 4


def test_a_name_is_taken_once_unless_it_was_refused(tmp_path):
    log = JobLog(tmp_path)
    log.add(make_job(tmp_path))
    with pytest.raises(ConfigError, match="--name=sft-1: a job of this name"):
        log.add(make_job(tmp_path))
    log.note_state("sft-1", JobState.refused)
    log.add(make_job(tmp_path))


def test_an_unknown_job_is_named_with_the_last_ones(tmp_path):
    log = JobLog(tmp_path)
    log.add(make_job(tmp_path))
    with pytest.raises(ConfigError, match=r"nope: no such job .*sft-1.*jobs list"):
        log.entry("nope")


def test_a_line_cut_off_is_named_and_does_not_take_the_next_one_with_it(tmp_path):
    log = JobLog(tmp_path)
    log.add(make_job(tmp_path))
    with (tmp_path / "jobs.jsonl").open("a") as file:
        file.write('{"job": {"na')
    with pytest.raises(DataError, match=r"jobs\.jsonl:2: damaged"):
        log.entries()


def _add(folder, number):
    JobLog(folder).add(make_job(folder, name=f"job-{number}"))


@pytest.mark.slow
def test_processes_append_whole_lines(tmp_path):
    with multiprocessing.get_context("fork").Pool(8) as pool:
        pool.starmap(_add, [(tmp_path, number) for number in range(8)])
    assert set(JobLog(tmp_path).entries()) == {f"job-{n}" for n in range(8)}


def test_the_table_is_markdown_with_newest_first(tmp_path):
    log = JobLog(tmp_path)
    log.add(make_job(tmp_path, name="a", description="x | y"))
    log.add(make_job(tmp_path, name="b", patch="f" * 64))
    lines = table(log.entries()).splitlines()
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
