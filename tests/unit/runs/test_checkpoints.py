"""Damage is found and passed over, and what is uploaded can be trusted, whatever is killed when."""

import shutil
import socket
import threading
from dataclasses import replace

import fsspec
import pytest
import stamina
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coding_model_project.errors import CheckpointError, ConfigError
from coding_model_project.runs.checkpoint_store import (
    BackgroundUploader,
    CheckpointStore,
    prepare_resume,
)
from coding_model_project.runs.checkpoints import (
    MANIFEST,
    TRACKER,
    Manifest,
    newest_good,
    prune,
    read_manifest,
    remove_shells,
    verify,
    write_manifest,
)

pytestmark = pytest.mark.usefixtures("remote")

WEIGHTS = "actor/model_world_size_1_rank_0.pt"
FILES = {WEIGHTS: b"w" * 4000, "actor/huggingface/config.json": b"{}", "data.pt": b""}


class Remote(MemoryFileSystem):
    """An object store that can fail: from the `fails_from`-th write on, and can be held up."""

    protocol = "remote"
    store = {}
    pseudo_dirs = [""]
    writes = 0
    fails_from = None
    passes = False
    error = OSError("connection reset")
    gate = None
    reached = threading.Event()

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.removeprefix("remote://"))

    def put_file(self, lpath, rpath, **kwargs):
        cls = type(self)
        cls.writes += 1
        cls.reached.set()
        if cls.gate is not None:
            cls.gate.wait(60)
        if cls.fails_from is not None and cls.writes >= cls.fails_from:
            if cls.passes:
                cls.fails_from = None
            raise cls.error
        return super().put_file(lpath, rpath, **kwargs)


class Said(list):
    def __call__(self, line):
        assert "\n" not in line
        self.append(line)


def save(checkpoints, step, *, complete=True, files=FILES):
    """A checkpoint as verl leaves it, and its tracker."""
    folder = checkpoints / f"global_step_{step}"
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (checkpoints / TRACKER).write_text(str(step))
    if complete:
        write_manifest(folder)
    return folder


def tracked(checkpoints):
    return (checkpoints / TRACKER).read_text()


def truncate(folder):
    (folder / WEIGHTS).write_bytes(b"w" * 10)


@pytest.fixture
def remote():
    fsspec.register_implementation("remote", Remote, clobber=True)
    Remote.store, Remote.pseudo_dirs, Remote.writes = {}, [""], 0
    Remote.fails_from = Remote.gate = None
    Remote.passes = False
    Remote.error = OSError("connection reset")
    Remote.reached = threading.Event()
    with stamina.set_testing(True, attempts=2):
        yield Remote


@pytest.fixture
def said():
    return Said()


@pytest.fixture
def store(said):
    return CheckpointStore("remote://bucket/run", keep=2, say=said)


# Manifests


def test_a_manifest_says_what_is_there(tmp_path):
    folder = save(tmp_path, 6)
    manifest = read_manifest(folder)
    sizes = {path: record.bytes for path, record in manifest.files.items()}
    assert (manifest.step, sizes) == (6, {path: len(text) for path, text in FILES.items()})
    assert not list(folder.rglob("*.partial"))
    (folder / f"{MANIFEST}.partial").write_text("a kill left this")
    assert write_manifest(folder).files.keys() == FILES.keys()
    (folder / "exported.safetensors").write_bytes(b"x")  # what came later does not matter
    assert verify(folder) == []


def change(folder):
    (folder / WEIGHTS).write_bytes(b"v" + b"w" * 3999)


def replace_by_folder(folder):
    (folder / "data.pt").unlink()
    (folder / "data.pt").mkdir()


DAMAGE = {
    "size": (truncate, f"{WEIGHTS}: size 10, not 4,000"),
    "content": (change, f"{WEIGHTS}: content changed"),
    "missing": (lambda f: (f / "data.pt").unlink(), "data.pt: missing"),
    "folder": (replace_by_folder, "data.pt: size"),
    "no manifest": (lambda f: (f / MANIFEST).unlink(), "no manifest.json: it was not written"),
    "cut": (lambda f: (f / MANIFEST).write_text('{"step": 1'), "manifest.json: not readable"),
    "list": (lambda f: (f / MANIFEST).write_text("[]"), "manifest.json: not readable"),
    "binary": (lambda f: (f / MANIFEST).write_bytes(b"\xff\0"), "manifest.json: not readable"),
}


@pytest.mark.parametrize(("damage", "problem"), DAMAGE.values(), ids=DAMAGE.keys())
def test_each_kind_of_damage_is_named(tmp_path, damage, problem):
    folder = save(tmp_path, 6)
    damage(folder)
    (found,) = verify(folder)
    assert found.startswith(problem)


@pytest.mark.slow
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None
)
@given(data=st.data())
def test_no_byte_changes_unseen(tmp_path, data):
    shutil.rmtree(tmp_path / "global_step_3", ignore_errors=True)
    contents = data.draw(st.lists(st.binary(max_size=50), min_size=1, max_size=3))
    folder = save(tmp_path, 3, files={f"actor/{n}.pt": c for n, c in enumerate(contents)})
    victims = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    victim = data.draw(st.sampled_from(sorted(victims)))
    content = victim.read_bytes()
    at = data.draw(st.integers(0, 10_000)) % len(content)  # manifests differ in length
    if data.draw(st.booleans()):
        victim.write_bytes(content[:at])
    else:
        flipped = content[at] ^ data.draw(st.integers(1, 255))
        victim.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
    assert verify(folder)
    victim.write_bytes(content)
    assert verify(folder) == []


@pytest.mark.parametrize("path", ["../outside", "/etc/outside", "actor/../../outside"])
def test_a_manifest_cannot_name_files_elsewhere(tmp_path, path):
    manifest = read_manifest(save(tmp_path, 1))
    record = next(iter(manifest.files.values()))
    hostile = Manifest(step=1, created=0.0, files={path: record})
    with pytest.raises(ValueError, match="outside"):
        Manifest.parse(hostile.text().encode())


# Falling back


def test_the_newest_is_taken_if_it_is_whole(tmp_path, said):
    save(tmp_path, 9)
    newest = save(tmp_path, 10)  # a string comparison would take 9
    (tmp_path / TRACKER).write_text("")  # verl was killed while it wrote it
    assert newest_good(tmp_path, said) == newest
    assert tracked(tmp_path) == "10"
    assert said == []


def test_a_damaged_one_is_moved_aside_with_a_word(tmp_path, said):
    good, bad = save(tmp_path, 6), save(tmp_path, 12)
    truncate(bad)
    assert newest_good(tmp_path, said) == good
    assert tracked(tmp_path) == "6"
    assert f"global_step_12 is damaged ({WEIGHTS}: size 10, not 4,000)" in said[0]
    assert said[0].endswith("resuming from global_step_6")
    assert (tmp_path / "global_step_12.corrupt" / WEIGHTS).read_bytes() == b"w" * 10
    assert newest_good(tmp_path, said) == good
    assert len(said) == 1


def test_nothing_that_was_moved_aside_is_overwritten(tmp_path, said):
    assert newest_good(tmp_path / "none", said) is None
    assert said == []
    for _ in range(3):
        save(tmp_path, 12, complete=False)
        assert newest_good(tmp_path, said) is None
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"global_step_12.corrupt{n}" for n in ("", "2", "3")}
    assert "no manifest.json" in said[-1] and said[-1].endswith("starting from the beginning")


def test_shells_of_verls_retention_are_removed(tmp_path):
    shell, kept = save(tmp_path, 2), save(tmp_path, 4)
    shutil.rmtree(shell / "actor")
    sft = save(tmp_path, 6, files={"model.pt": b"w", "huggingface/config.json": b"{}"})
    shutil.rmtree(sft / "huggingface")
    unknown = save(tmp_path, 8, complete=False, files={"data.pt": b"d"})
    half = save(tmp_path, 10, files={"actor/a.pt": b"a", "critic/c.pt": b"c"})
    shutil.rmtree(half / "critic")
    assert remove_shells(tmp_path) == [shell]
    assert all(one.exists() for one in (kept, sft, unknown, half))


@pytest.mark.verl
def test_verl_resumes_from_what_was_chosen(cpu_platform, tmp_path, said):
    from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

    good, bad = save(tmp_path, 6), save(tmp_path, 12)
    change(bad)
    newest_good(tmp_path, said)
    assert find_latest_ckpt_path(str(tmp_path)) == str(good)
    change(good)
    newest_good(tmp_path, said)
    assert find_latest_ckpt_path(str(tmp_path)) is None


# The shards of all ranks

KINDS = ("model", "optim", "extra_state")


def sharded(folder, ranks, world_size=2):
    """A checkpoint as verl's FSDP engine saves it on the disk that some of its ranks have."""
    for rank in ranks:
        for kind in KINDS:
            file = folder / "actor" / f"{kind}_world_size_{world_size}_rank_{rank}.pt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(f"{kind} {rank}".encode())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.pt").write_bytes(b"d")
    return folder


def test_a_manifest_holds_the_shards_of_all_ranks(tmp_path):
    folder = sharded(tmp_path / "global_step_2", range(10), world_size=10)
    assert len(write_manifest(folder).files) == 31
    assert verify(folder) == []


def test_one_nodes_shards_are_no_checkpoint(tmp_path):
    folder = sharded(tmp_path / "global_step_2", [0])
    with pytest.raises(CheckpointError) as caught:
        write_manifest(folder, patience_s=0)
    said = str(caught.value)
    missing = "actor/extra_state_world_size_2_rank_1.pt (and 2 more)"
    assert f"{missing} is not on {socket.gethostname()}" in said and "set coding.run_dir" in said
    assert not (folder / MANIFEST).exists()


def test_a_node_without_a_rank_has_no_checkpoint(tmp_path):
    folder = sharded(tmp_path / "global_step_2", [])
    with pytest.raises(CheckpointError, match=r"actor/\* is not on"):
        write_manifest(folder, roles=["actor"], patience_s=0)


def test_shards_that_a_shared_folder_shows_late_are_waited_for(tmp_path):
    folder = sharded(tmp_path / "global_step_2", [0])
    late = threading.Timer(0.5, sharded, [folder, [1]])
    late.start()
    assert len(write_manifest(folder).files) == 7
    late.join()


def test_a_manifest_of_one_nodes_shards_is_never_whole(tmp_path, said, store):
    """Versions before this one wrote such manifests, and uploaded them."""
    good = sharded(tmp_path / "global_step_1", [0, 1])
    write_manifest(good)
    folder = sharded(tmp_path / "global_step_2", [0, 1])
    whole = write_manifest(folder)
    files = {path: record for path, record in whole.files.items() if "rank_1" not in path}
    partial = replace(whole, files=files).text()
    (folder / MANIFEST).write_text(partial)
    assert "lacks actor/extra_state_world_size_2_rank_1.pt" in verify(folder)[0]
    there = "/bucket/run/global_step_2/manifest.json"
    fsspec.filesystem("remote").pipe_file(there, partial.encode())
    assert store.steps() == []
    assert prepare_resume(tmp_path, store, said) == good
    assert "global_step_2 is damaged (manifest.json: lacks" in said[0]


# Retention


def test_only_the_newest_whole_ones_are_left_after_restarts(tmp_path):
    for step in (2, 4, 6):
        save(tmp_path, step)
    save(tmp_path, 8, complete=False)
    prune(tmp_path, keep=2)
    left = {folder.name for folder in tmp_path.glob("global_step_*")}
    assert left == {"global_step_4", "global_step_6", "global_step_8"}


# Checkpoints in an object store: uploaded beside training, retained, restored, damaged.

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
