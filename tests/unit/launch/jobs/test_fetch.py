"""A run's folder from a shared path or its mirror."""

import fsspec
import pytest

from coding_model_project.errors import ConfigError, JobError
from coding_model_project.launch.jobs.fetch import fetch

FILES = ("run.json", "metrics.jsonl", "checkpoints/global_step_1/model.bin", "logs/a/console.log")


@pytest.fixture(params=["path", "mirror"])
def source(request, tmp_path):
    """Return the run's location, a shared folder or a URL, with a function that writes there."""
    if request.param == "path":
        root, mirror = str(tmp_path / "run"), ""
        fs, base = fsspec.url_to_fs(root, auto_mkdir=True)
    else:
        root, mirror = "/not/here", f"memory://{tmp_path.name}/run"
        fs, base = fsspec.url_to_fs(mirror)
    write = lambda name, text: fs.pipe_file(f"{base}/{name}", text.encode())  # noqa: E731
    for name in FILES:
        write(name, name)
    return root, mirror, write


def test_a_run_is_copied_without_checkpoints_and_again_only_what_is_new(source, tmp_path):
    root, mirror, write = source
    done = fetch(root, mirror, tmp_path / "out", checkpoints=False)
    assert (done.copied, done.kept) == (3, 0)
    assert not (tmp_path / "out" / "checkpoints").exists()
    write("metrics.jsonl", "longer than it was")
    done = fetch(root, mirror, tmp_path / "out", checkpoints=True)
    assert (done.copied, done.kept) == (2, 2)
    assert (tmp_path / "out" / "metrics.jsonl").read_text() == "longer than it was"
    assert (tmp_path / "out" / FILES[2]).read_text() == FILES[2]


def test_a_run_that_is_nowhere_is_named_with_the_ways_out(tmp_path):
    with pytest.raises(ConfigError, match=r"coding\.run_dir=/not/here.*--from"):
        fetch("/not/here", "", tmp_path / "out", checkpoints=False)
    with pytest.raises(ConfigError, match="nothing there yet"):
        fetch("/not/here", "memory://nothing", tmp_path / "out", checkpoints=False)


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
    with pytest.raises(JobError, match=r"No space left .*fetch again"):
        fetch(str(run), "", tmp_path / "out", checkpoints=False)
    assert (tmp_path / "out" / "a").read_text() == "a"
    assert not (tmp_path / "out" / "b").exists()
