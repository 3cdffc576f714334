"""The files of a working tree that a job gets, and the record of them."""

import json
import subprocess
from zipfile import ZipFile

import pytest

from coding_model_project.contained import unpack_zip
from coding_model_project.errors import ConfigError
from coding_model_project.launch.jobs.control import JobLog
from coding_model_project.launch.jobs.source import read_source, write_package
from coding_model_project.runs import provenance
from tests.unit.launch.jobs.conftest import git, make_job


def changed(repo):
    (repo / "old.py").unlink()
    (repo / "new.py").write_text("y = 2\n")
    (repo / "staged.bin").write_bytes(b"\0\xff")
    git(repo, "add", "staged.bin")
    (repo / "data").mkdir()
    (repo / "data" / "big").write_text("ignored")
    return repo


def test_a_package_has_the_tree_as_it_is_without_what_git_ignores(repo, tmp_path):
    source = read_source(changed(repo), max_mb=1)
    write_package(source, tmp_path / "p.zip")
    unpack_zip(tmp_path / "p.zip", tmp_path / "out")
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    found = {str(path.relative_to(tmp_path / "out")) for path in files}
    shipped = {".job_source/state.json", ".job_source/uncommitted.patch"}
    assert found == {".gitignore", "tool.sh", "new.py", "staged.bin", *shipped}
    assert (tmp_path / "out" / "tool.sh").stat().st_mode & 0o777 == 0o755


def test_commit_and_patch_give_the_tree_again(repo, tmp_path):
    status = git(changed(repo), "status", "--porcelain")
    source = read_source(repo, max_mb=1)
    assert git(repo, "status", "--porcelain") == status  # the user's own index is as it was
    git(tmp_path, "clone", "--quiet", str(repo), "again")
    git(tmp_path / "again", "checkout", "--quiet", source.commit)
    apply = ["git", "apply", "--binary"]
    subprocess.run(apply, cwd=tmp_path / "again", input=source.patch, check=True)
    assert read_source(tmp_path / "again", max_mb=1).patch_hash == source.patch_hash
    assert (tmp_path / "again" / "staged.bin").read_bytes() == b"\0\xff"


@pytest.mark.parametrize(
    "setting", ["diff.noprefix=true", "color.ui=always", "diff.external=true", "diff.relative=true"]
)
def test_settings_of_the_users_git_do_not_spoil_the_patch(repo, setting):
    plain = read_source(changed(repo), max_mb=1).patch
    git(repo, "config", *setting.split("="))
    assert read_source(repo, max_mb=1).patch == plain


def test_a_clean_tree_has_no_patch_and_equal_trees_give_equal_packages(repo, tmp_path):
    for name in ("a", "b"):
        source = read_source(repo, max_mb=1)
        write_package(source, tmp_path / name)
    assert (source.patch, source.patch_hash) == (b"", "")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_package_has_no_earlier_packages(repo):
    """A user's own repository need not ignore outputs/."""
    before = read_source(repo, max_mb=1)
    log = JobLog(repo / "outputs" / "jobs")
    log.add(make_job(repo))
    write_package(before, log.folder / "sft-1" / "source.zip")
    after = read_source(repo, max_mb=1)
    assert (after.files, after.patch) == (before.files, b"")


def test_a_huge_untracked_file_is_named(repo):
    (repo / "model.bin").write_bytes(bytes(2_000_000))
    with pytest.raises(ConfigError, match=r"--max-package-mb=1: .*model\.bin .*untracked"):
        read_source(repo, max_mb=1)


def test_a_folder_outside_of_git_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--repo=.*not a git working tree"):
        read_source(tmp_path, max_mb=1)


def test_a_run_in_a_job_notes_the_commit_that_was_shipped(repo, tmp_path, monkeypatch):
    source = read_source(changed(repo), max_mb=1)
    write_package(source, tmp_path / "p.zip")
    with ZipFile(tmp_path / "p.zip") as package:
        assert json.loads(package.read(".job_source/state.json"))["commit"] == source.commit
    unpack_zip(tmp_path / "p.zip", tmp_path / "out")
    monkeypatch.setattr(provenance, "_SHIPPED", tmp_path / "out" / ".job_source")
    state = provenance.git_state()
    assert (state["commit"], state["dirty"]) == (source.commit, True)
    provenance.write_patches(tmp_path / "patches")
    assert (tmp_path / "patches" / "uncommitted.patch").read_bytes() == source.patch
