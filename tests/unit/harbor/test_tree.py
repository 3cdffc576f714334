"""Transfer of files into and out of an environment."""

import os

import pytest

from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.environment.tree import TooLarge, Tree


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "made"
    (made / "sub").mkdir(parents=True)
    (made / "sub" / "run.sh").write_text("x" * 100)
    (made / "sub" / "run.sh").chmod(0o755)
    (made / "empty").write_bytes(b"")
    (made / "inside").symlink_to("sub/run.sh")
    (made / "sub" / "out").symlink_to("../../secret")
    (tmp_path / "secret").write_text("host")
    os.mkfifo(made / "pipe")
    return made


def test_what_is_packed_is_unpacked(folder, tmp_path):
    packed = tree.pack(str(folder), 1000, 100)
    assert packed.file("sub/run.sh") == b"x" * 100
    tree.unpack(str(tmp_path / "again"), Tree.of_frame(*packed.frame()))
    again = tmp_path / "again"
    assert (again / "sub/run.sh").read_text() == "x" * 100
    assert os.access(again / "sub/run.sh", os.X_OK) and (again / "inside").is_symlink()
    assert not (again / "pipe").exists()


def test_links_are_kept_and_not_followed(folder):
    packed = tree.pack(str(folder), 1000, 100)
    assert b"host" not in packed.frame()[1]
    assert ("sub/out", "l") in [entry[:2] for entry in packed.entries]
    assert [entry[0] for entry in packed.safe().entries if entry[1] == "l"] == ["inside"]


def test_a_link_in_the_way_is_replaced(folder, tmp_path):
    tree.unpack(str(folder), tree.of_bytes("sub/out", b"new"))
    assert (folder / "sub/out").read_text() == "new"
    assert (tmp_path / "secret").read_text() == "host"


def test_too_much(folder):
    with pytest.raises(TooLarge, match="100 bytes"):
        tree.pack(str(folder), 99, 100)
    with pytest.raises(TooLarge, match="more than 2 files"):
        tree.pack(str(folder), 1000, 2)


def test_what_is_no_file_is_not_read(folder):
    with pytest.raises(IsADirectoryError):
        tree.read(str(folder), 100)
    with pytest.raises(OSError, match="not a regular file"):
        tree.read(str(folder / "pipe"), 100)


def test_parts_of_a_tree():
    made = tree.of_bytes("tests/a", b"1") + tree.of_bytes("b", b"22") + tree.of_bytes("c.log", b"3")
    assert made.within("tests") == tree.of_bytes("a", b"1")
    assert made.without(["*.log"]).file("c.log") is None
    assert made.without(["*.log"]).file("b") == b"22"
    assert Tree().below("app/x").entries == (("app", "d", 0o755, ""), ("app/x", "d", 0o755, ""))
