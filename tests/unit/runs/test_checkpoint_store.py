"""Checkpoints in an object store: uploaded beside training, retained, restored, damaged."""

import shutil
import threading

import fsspec
import pytest

from coding_model_project.errors import CheckpointError, ConfigError
from coding_model_project.runs.checkpoint_store import (
    BackgroundUploader,
    CheckpointStore,
    prepare_resume,
)
from coding_model_project.runs.checkpoints import MANIFEST, TRACKER, verify
from tests.unit.runs.checkpoint_world import FILES, WEIGHTS, Remote, save, tracked, truncate

pytestmark = pytest.mark.usefixtures("remote")


# Elsewhere


@pytest.mark.parametrize("scheme", ["remote", "memory", "file"])
def test_a_restart_on_an_empty_machine_finds_the_newest(tmp_path, said, scheme):
    store = CheckpointStore(f"{scheme}://{tmp_path}/store", keep=3, say=said)
    for step in (9, 10):
        store.upload(save(tmp_path / "here", step))
    there = tmp_path / "there"
    restored = prepare_resume(there, store, said)
    assert restored == there / "global_step_10" and verify(restored) == []
    names = {p.relative_to(restored).as_posix() for p in restored.rglob("*") if p.is_file()}
    assert names == {*FILES, MANIFEST}
    assert tracked(there) == "10"
    assert {path.name for path in there.iterdir()} == {"global_step_10", TRACKER}
    (line,) = said
    assert f"global_step_10 restored from {store.url}" in line


def test_only_what_is_damaged_here_is_fetched(tmp_path, store, said):
    assert prepare_resume(tmp_path, store, said) is None  # an empty store is no error
    store.upload(save(tmp_path, 6))
    newer = save(tmp_path, 12)
    assert prepare_resume(tmp_path, store, said) == newer
    assert said == []
    store.upload(newer)
    truncate(newer)
    assert prepare_resume(tmp_path, store, said) == newer
    assert verify(newer) == [] and tracked(tmp_path) == "12"
    assert (tmp_path / "global_step_12.corrupt").exists()


@pytest.mark.parametrize("n_files", range(len(FILES) + 1))
def test_an_upload_killed_in_the_middle_is_incomplete(tmp_path, store, said, remote, n_files):
    store.upload(save(tmp_path / "here", 6))
    remote.fails_from = remote.writes + 1 + n_files
    with pytest.raises(CheckpointError, match="global_step_12 could not be uploaded: connection"):
        store.upload(save(tmp_path / "here", 12))
    assert store.steps() == [6]
    assert prepare_resume(tmp_path / "there", store, said) == tmp_path / "there/global_step_6"
    remote.fails_from = None
    store.upload(tmp_path / "here/global_step_12")
    assert store.steps() == [12, 6]


def test_a_fault_that_passes_is_retried_and_announced(tmp_path, store, remote, capsys):
    remote.fails_from, remote.passes = 1, True
    store.upload(save(tmp_path, 6))
    assert store.steps() == [6]
    down, back = capsys.readouterr().err.splitlines()
    assert "remote://bucket/run does not answer (connection reset)" in down and "is back" in back


def test_bytes_lost_on_the_way_are_noticed(tmp_path, store, monkeypatch):
    monkeypatch.setattr(Remote, "size", lambda self, path: 3)
    with pytest.raises(CheckpointError, match="3 of 2 bytes arrived"):
        store.upload(save(tmp_path, 6, files={"data.pt": b"ab"}))
    assert store.steps() == []


def test_a_step_done_again_replaces_the_copy(tmp_path, store, said):
    store.upload(save(tmp_path / "a", 6))
    store.upload(save(tmp_path / "b", 6, files={"actor/other.pt": b"new"}))
    restored = prepare_resume(tmp_path / "c", store, said)
    assert restored is not None
    assert verify(restored) == []
    assert sorted(p.name for p in restored.rglob("*.pt")) == ["other.pt"]


def test_the_same_checkpoint_is_not_copied_twice(tmp_path, store, remote):
    folder = save(tmp_path, 6)
    store.upload(folder)
    writes = remote.writes
    store.upload(folder)
    assert remote.writes == writes


def test_only_the_newest_are_kept_there(tmp_path, store, remote):
    killed = "remote://bucket/run/global_step_1/data.pt"
    fsspec.filesystem("remote").pipe_file(killed, b"of an upload that was killed")
    for step in (8, 9, 10, 11):
        store.upload(save(tmp_path, step))
    assert store.steps() == [11, 10]
    kept = {path.split("/")[3] for path in remote.store}
    assert kept == {"global_step_11", "global_step_10"}


def test_deleting_begins_with_the_manifest(tmp_path, store, said, monkeypatch):
    for step in (1, 2):
        store.upload(save(tmp_path, step))

    def killed(self, path, recursive=False, maxdepth=None):
        raise OSError("killed") if path.endswith("1") else FileNotFoundError

    monkeypatch.setattr(Remote, "rm", killed)
    store.upload(save(tmp_path, 3))  # what is up is up
    assert "old ones could not be deleted: killed" in said[0]
    assert store.steps() == [3, 2]
    assert f"/bucket/run/global_step_1/{WEIGHTS}" in Remote.store


def test_a_model_that_was_cut_short_or_replaced_is_not_evaluated(tmp_path, store, said, remote):
    store.upload(save(tmp_path / "here", 6))
    is_model = lambda path: path != "data.pt"  # noqa: E731
    files = fsspec.filesystem("remote")
    files.pipe_file(f"/bucket/run/global_step_6/{WEIGHTS}", b"w" * 3999)
    for _ in range(2):  # polls
        assert store.copy(6, tmp_path / "there", is_model) is None
    (line,) = said
    assert f"global_step_6 at remote://bucket/run is damaged ({WEIGHTS}: size 3,999" in line
    store.upload(save(tmp_path / "again", 6, files={WEIGHTS: b"v" * 4000, "data.pt": b""}))
    copied = store.copy(6, tmp_path / "there", is_model)
    assert copied is not None
    assert (copied / WEIGHTS).read_bytes() == b"v" * 4000
    assert not (copied / "data.pt").exists()
    assert len(said) == 1


def test_a_copy_that_rotted_is_passed_over(tmp_path, store, said, remote):
    for step in (6, 12):
        store.upload(save(tmp_path / "here", step))
    fsspec.filesystem("remote").rm_file(f"/bucket/run/global_step_12/{WEIGHTS}")
    restored = prepare_resume(tmp_path / "there", store, said)
    assert restored == tmp_path / "there/global_step_6"
    assert f"global_step_12 at {store.url} is damaged ({WEIGHTS}: missing)" in said[0]


@pytest.mark.parametrize(
    ("url", "keep", "message"),
    [
        ("nosuch://x", 1, "coding.checkpoints.url=nosuch://x"),
        ("remote://x", 0, "coding.checkpoints.keep=0"),
    ],
)
def test_what_cannot_work_is_refused_at_once(said, url, keep, message):
    with pytest.raises(ConfigError, match=message):
        CheckpointStore(url, keep, said)


# In the background


def test_the_newest_goes_first(tmp_path, store, said, remote):
    remote.gate = threading.Event()
    uploader = BackgroundUploader(store, said)
    uploader.submit(save(tmp_path, 1))
    assert remote.reached.wait(60)
    order = []
    upload = store.upload
    store.upload = lambda folder: (order.append(folder.name), upload(folder))
    for step in (2, 3):
        uploader.submit(save(tmp_path, step))
    remote.gate.set()
    uploader.close(10)
    assert order == ["global_step_3", "global_step_2"]
    assert store.steps() == [3, 2]


@pytest.mark.parametrize(
    "error", [OSError("connection reset"), RuntimeError("NoCredentials\nat all")]
)
def test_the_end_says_if_the_last_one_never_got_up(tmp_path, store, said, remote, error):
    uploader = BackgroundUploader(store, said)
    uploader.submit(save(tmp_path, 1))
    while not store.steps():
        threading.Event().wait(0.01)
    remote.fails_from, remote.error = 1, error
    uploader.submit(save(tmp_path, 2))
    with pytest.raises(CheckpointError, match=rf"global_step_2 .*{str(error).split()[0]}"):
        uploader.close(10)


def test_a_failed_upload_is_said_and_tried_again_with_the_next(tmp_path, store, said, remote):
    remote.fails_from = 1
    uploader = BackgroundUploader(store, said)
    uploader.submit(save(tmp_path, 1))
    while not said:
        threading.Event().wait(0.01)
    assert "global_step_1 could not be uploaded: connection reset; retrying" in said[0]
    remote.fails_from = None
    uploader.submit(save(tmp_path, 2))
    uploader.close(10)
    assert store.steps() == [2, 1]
    assert len(said) == 1


def test_the_end_does_not_wait_for_ever(tmp_path, store, said, remote):
    remote.gate = threading.Event()
    uploader = BackgroundUploader(store, said)
    uploader.submit(save(tmp_path, 1))
    with pytest.raises(CheckpointError, match="global_step_1 is still being uploaded after 0 s"):
        uploader.close(0.1)
    remote.gate.set()


@pytest.mark.parametrize("left", ["nothing", "a shell"])
def test_one_that_verl_deletes_meanwhile_is_skipped(tmp_path, store, said, remote, left):
    remote.gate = threading.Event()
    uploader = BackgroundUploader(store, said)
    old = save(tmp_path, 1)
    uploader.submit(old)
    assert remote.reached.wait(60)
    shutil.rmtree(old if left == "nothing" else old / "actor")
    uploader.submit(save(tmp_path, 2))
    remote.gate.set()
    uploader.close(10)
    assert store.steps() == [2]
    assert "global_step_1 was deleted here before it was uploaded" in said[0]
