"""Detection of toolchains: an incomplete one is refused, with a message that names what is missing."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded.languages import go, java, rust, stages, toolchains
from tests.tables import tables
from tests.text_cases import sources

SOURCES = sources(__file__)

CASES = tables("java_names")

RUSTC = SOURCES["rustc"]
JAVA = "echo openjdk 11.0.2 2019-01-15"
GO = SOURCES["go"]


@pytest.fixture
def bin_folder(tmp_path, monkeypatch):
    """The only folder in the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def tool(path: Path, script: str, **words: str) -> None:
    for name, word in words.items():
        script = script.replace(name, word)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script.replace('FOLDER', str(path.parents[1]))}\n")
    path.chmod(0o755)


def test_a_machine_without_tools_says_where_they_are_from(bin_folder):
    assert "https://rustup.rs" in str(rust.find.__wrapped__())
    assert "development kit, 17 or later" in str(java.find.__wrapped__())
    assert "https://go.dev" in str(go.find.__wrapped__())


def test_half_a_rust_is_none(bin_folder, tmp_path):
    found = rust.find.__wrapped__
    tool(bin_folder / "rustc", "exit 1")
    assert "rustup default stable" in str(found())
    tool(bin_folder / "rustc", RUSTC, RELEASE="1.40.0")
    assert found() == "rustc 1.40 is too old: 1.63 or later"
    tool(bin_folder / "rustc", RUSTC, RELEASE="1.80.0")
    assert "rustup target add here" in str(found())
    libraries = tmp_path / "toolchain/lib/rustlib/here/lib"
    libraries.mkdir(parents=True)
    (libraries / "libstd-1.rlib").touch()
    assert "no bin/rustc" in str(found())
    tool(tmp_path / "toolchain/bin/rustc", "")
    assert "cc with the static libc.a, and ld" in str(found())


def test_half_a_java_is_none(bin_folder, tmp_path):
    found = java.find.__wrapped__
    tool(bin_folder / "java", JAVA)
    assert "there is a java without javac" in str(found())
    tool(bin_folder / "javac", "")
    assert "no bin/java or lib/modules" in str(found())
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/modules").touch()
    assert found() == "Java 11.0.2 is too old: 17 or later"


def test_half_a_go_is_none(bin_folder, tmp_path):
    found = go.find.__wrapped__
    tool(bin_folder / "go", "exit 1")
    assert found() == "the version of go cannot be read"
    tool(bin_folder / "go", GO, GOVERSION_HERE="go1.13.8")
    assert found() == "go1.13.8 is too old: 1.20 or later"
    tool(bin_folder / "go", GO, GOVERSION_HERE="go1.22.1")
    assert "no compile and link in" in str(found())
    for name in ("compile", "link"):
        tool(tmp_path / "goroot/tools" / name, "")
    assert "no standard library" in str(found())
    (tmp_path / "goroot/src/fmt").mkdir(parents=True)
    whole = found()  # it looks so
    assert not isinstance(whole, str) and whole.version == "go 1.22.1"
    tool(bin_folder / "go", "echo a >&2; echo 'no such tool' >&2; exit 1")
    with pytest.raises(ConfigError, match=r"^go programs do not run here: .*: no such tool$"):
        whole.prepare()


def test_a_refusal_names_the_way_out(monkeypatch):
    monkeypatch.setattr(toolchains, "_found", lambda _: "go is not installed")
    with pytest.raises(ConfigError, match=r"go programs do not run here: .*SandboxFusion"):
        toolchains.toolchain("golang", Tier.namespaces)
    assert "not go (go is not installed)" in toolchains.summary(Tier.namespaces)


MAIN = "public static void main(String[] args) {}"


@pytest.mark.parametrize(("source", "file", "main"), CASES["names"])
def test_a_java_source_names_its_file_and_its_main_class(source, file, main):
    found = java.names_of(source)
    assert (found.file, found.main) == (file, main)


@pytest.mark.timeout(20)
def test_names_in_a_long_java_source_take_no_time():
    pieces = ["class A {", "public ", "\n", "package ", "a.b ", "{", "void main", "/*"]
    for piece in (*pieces, '"', '\\"', '"""', "'"):
        java.names_of(piece * 20_000)


def test_an_archive_has_regular_files_and_is_the_same_each_time(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/B.class").write_bytes(b"1")
    (tmp_path / "A.class").write_bytes(b"2")
    (tmp_path / "passwd").symlink_to("/etc/passwd")
    (tmp_path / "etc").symlink_to("/etc")
    os.mkfifo(tmp_path / "fifo")
    packed = stages.pack_folder(tmp_path)
    assert zipfile.ZipFile(io.BytesIO(packed)).namelist() == ["A.class", "a/B.class"]
    os.utime(tmp_path / "A.class", (0, 0))
    assert stages.pack_folder(tmp_path) == packed
    with (tmp_path / "Z.class").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ValueError, match="larger than 64 MB"):
        stages.pack_folder(tmp_path)
