"""Names from outside stay below their folder."""

import os
import shutil
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project import contained
from coding_model_project.contained import (
    UnsafeNameError,
    below,
    copy_folder,
    file_name,
    in_root,
    open_lock,
    private_folder,
    relative,
    unpack_zip,
)
from coding_model_project.errors import StorageError
from tests.tables import tables

CASES = tables("unit")

HOSTILE = st.lists(
    st.one_of(st.sampled_from(["..", ".", "", "a", "\0", "\ud800", "x" * 256, "~"]), st.text()),
    max_size=5,
).map("/".join)


@given(HOSTILE)
def test_a_name_is_below_its_folder_or_refused(name):
    root = Path("/nowhere/root")
    try:
        path = below(root, name)
    except UnsafeNameError:
        return
    assert os.path.normpath(path) == str(path)
    assert path.is_relative_to(root) and path != root


@given(HOSTILE)
def test_any_text_becomes_the_name_of_one_file(text):
    assert relative(f"{file_name(text)}.json") == f"{file_name(text)}.json"
    assert "/" not in file_name(text)
    assert file_name("mbpp/gsm8k_5shot") == "mbpp-gsm8k_5shot"


@pytest.mark.parametrize("target", ["/etc", "../..", "inside/../../.."])
def test_no_name_is_followed_through_a_link_that_leaves(tmp_path, target):
    root = tmp_path / "a" / "root"
    (root / "inside").mkdir(parents=True)
    (root / "link").symlink_to(target)
    (root / "fine").symlink_to("inside")
    with pytest.raises(UnsafeNameError, match="link out of"):
        below(root, "link/new")
    assert below(root, "fine/new") == root / "fine/new"


@pytest.mark.parametrize(("target", "leaves"), CASES["links"])
def test_links_are_judged_by_their_text(target, leaves):
    assert contained.link_leaves("a/link", target) is leaves


# ── archives ──────────────────────────────────────────────────────────────────────────────────────


def test_an_archive_has_a_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(contained, "MAX_UNPACKED_BYTES", 10)
    monkeypatch.setattr(contained, "MAX_MEMBERS", 3)
    for content, said in (
        ({"a": "x" * 11}, "more than 10 bytes"),
        (dict.fromkeys("abcd", ""), "more than 3 files"),
    ):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            for name, text in content.items():
                archive.writestr(name, text)
        with pytest.raises(UnsafeNameError, match=said):
            unpack_zip(tmp_path / "a.zip", tmp_path / "out")


def test_a_zip_file_stays_in_its_folder(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("fine/x", "x")
        archive.writestr("../up", "x")
    with pytest.raises(UnsafeNameError, match="up"):
        unpack_zip(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "up").exists()


# ── folders ───────────────────────────────────────────────────────────────────────────────────────


def test_a_copied_folder_has_no_foreign_file(tmp_path):
    model = tmp_path / "models--x" / "snapshots" / "1"
    model.mkdir(parents=True)
    (tmp_path / "models--x" / "blobs").mkdir()
    (tmp_path / "models--x" / "blobs" / "0f").write_text("weights")
    (model / "model.safetensors").symlink_to("../../blobs/0f")
    copy_folder(model, tmp_path / "copy")  # as the hub's cache keeps models
    assert (tmp_path / "copy/model.safetensors").read_text() == "weights"
    (tmp_path / "credentials").write_text("secret")
    (model / "notes.txt").symlink_to(tmp_path / "credentials")
    with pytest.raises(UnsafeNameError, match=r"notes\.txt is a link out of the folder"):
        copy_folder(model, tmp_path / "other")


def test_a_root_file_systems_links_do_not_reach_the_host(tmp_path):
    (tmp_path / "host").mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "lib").symlink_to("/first")
    (root / "first").symlink_to(tmp_path / "host")
    assert in_root(root, "lib") == root / str(tmp_path / "host").lstrip("/")
    (root / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        in_root(root, "loop")


# ── names that other users know ───────────────────────────────────────────────────────────────────


def test_a_lock_is_never_opened_through_a_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "soft").symlink_to(victim)
    (tmp_path / "hard").hardlink_to(victim)
    for name in ("soft", "hard"):
        with pytest.raises(OSError):
            open_lock(tmp_path / name)
    os.close(open_lock(tmp_path / "lock"))
    assert victim.read_text() == "mine"


def test_a_folder_that_another_made_first_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shared = tmp_path / "tmp"
    shared.mkdir()
    own = private_folder(shared)
    assert own.parent == shared and own.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(own)
    (tmp_path / "theirs").mkdir()
    own.symlink_to(tmp_path / "theirs")
    fallback = private_folder(shared)
    assert fallback.is_relative_to(tmp_path / "cache")
    fallback.chmod(0o777)
    with pytest.raises(StorageError, match="belongs to another user"):
        private_folder(shared)
