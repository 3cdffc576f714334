"""A run's folder from a shared path or its mirror."""

import os
import time

import fsspec
import pytest

from coding_model_project.cli import main
from coding_model_project.errors import ConfigError, StorageError
from coding_model_project.launch.jobs.control import fetch, source_of
from coding_model_project.launch.jobs.job_log import JobLog
from coding_model_project.runs.mirror import Mirror
from tests.unit.launch.jobs.conftest import make_job

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
        write(name, name)
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
    assert (tmp_path / "out" / FILES[2]).read_text() == FILES[2]


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
        (tmp_path / name / "run.json").write_text(name)
        Mirror(tmp_path / name, f"memory://{tmp_path.name}/{name}", 1.0, ()).sync()
    with pytest.raises(ConfigError, match=r"--out=.*/b: contains another run; choose another"):
        fetch(f"memory://{tmp_path.name}/a", tmp_path / "b", checkpoints=False)
    assert (tmp_path / "b" / "run.json").read_text() == "b"


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
