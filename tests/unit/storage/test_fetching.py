"""Results for a URL that cannot be uploaded."""

import errno
import tempfile
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from coding_model_project.errors import ConfigError, DownloadError
from coding_model_project.storage.fetching import published
from coding_model_project.storage.store_errors import explained


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_results_that_cannot_be_uploaded_are_kept(temporary, monkeypatch, capsys):
    def lost(self, lpath, rpath, **options):
        raise FileExistsError("rejected")  # not retried

    monkeypatch.setattr(MemoryFileSystem, "put_file", lost)
    with (
        pytest.raises(DownloadError, match="rejected"),
        published(Path("memory://out/rows.jsonl")) as out,
    ):
        out.write_text("hours of work")
    (folder,) = temporary.glob("coding_out_*")
    assert (folder / "rows.jsonl").read_text() == "hours of work"
    assert capsys.readouterr().err == f"not uploaded; the results are in {folder}\n"


def test_nothing_is_left_of_results_that_are_uploaded_or_unfinished(temporary):
    with published(Path("memory://out/rows.jsonl")) as out:
        out.write_text("rows")
    with pytest.raises(ValueError, match="own"), published(Path("memory://out/other")) as out:
        out.write_text("half")
        raise ValueError("the block's own")
    assert list(temporary.glob("coding_out_*")) == []
    assert fsspec.filesystem("memory").cat_file("/out/rows.jsonl") == b"rows"


# Errors that no store raised: this machine's own.


def test_a_folder_here_that_cannot_be_written_is_not_blamed_on_the_credentials():
    error = PermissionError(errno.EACCES, "Permission denied", "/cache/runs")
    told = explained(error, "s3://bucket/run")
    assert isinstance(told, ConfigError)
    assert str(told) == "s3://bucket/run: /cache/runs: permission denied on this machine"
