"""Programs in other languages: confined as Python's are, and ended for the same reasons."""

import asyncio
import io
import os
import sys
import tempfile
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox import languages
from coding_model_project.sandbox.embedded import EmbeddedSandbox, supervisor
from coding_model_project.sandbox.embedded.languages import go, java, rust, stages, toolchains
from coding_model_project.sandbox.embedded.languages.build import Binaries
from coding_model_project.sandbox.embedded.languages.foreign import ForeignSlot
from coding_model_project.sandbox.fusion.other_languages import WithServers
from coding_model_project.types import Call, Execution, Files, Problem, Program, Status, Stdin, Test
from tests.language_cases import BASH_ATTEMPTS, CANARY, CASES, LIMITS, Case
from tests.tables import tables
from tests.text_cases import sources
from tests.unit.sandbox.fusion_servers import Server, fake, fusion, program_of_a_probe

SOURCES = sources(__file__)

pytestmark = pytest.mark.xdist_group("languages")  # which starts sandboxes once


@pytest.fixture(scope="module", params=[Tier.namespaces, Tier.seccomp])
async def sandbox(request):
    if problem := supervisor.why_not(request.param, sys.executable):
        pytest.skip(f"tier {request.param} does not work here: {problem}")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(CANARY, "secret")
        async with EmbeddedSandbox(workers=2, tier=request.param) as sandbox:
            yield sandbox


def needs(name: str, tier: Tier) -> None:
    if problem := toolchains.why_not(name, tier):
        pytest.skip(f"{name}: {problem}")


@pytest.mark.sandbox
@pytest.mark.parametrize("name", CASES)
async def test_every_case_ends_as_it_must(sandbox, name):
    needs(name, sandbox.tier)

    async def problem(case: Case) -> str | None:
        program = Program(source=case.source, language=name)
        (execution,) = await sandbox.run(program, [Stdin("1 2")], case.limits)
        return case.problem(execution)

    problems = await asyncio.gather(*map(problem, CASES[name]))
    assert "\n".join(problem for problem in problems if problem) == ""


@pytest.mark.sandbox
async def test_a_bash_program_gets_nothing_of_the_host(sandbox):
    needs("bash", sandbox.tier)
    program = Program(source=BASH_ATTEMPTS, language="bash")
    (execution,) = await sandbox.run(program, [Stdin("")], LIMITS)
    assert (execution.status, execution.stdout) == (Status.finished, "")


@pytest.mark.sandbox
async def test_nothing_is_left_behind(sandbox, monkeypatch, tmp_path):
    """Neither compilations nor a shell's children leave files or processes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with EmbeddedSandbox(workers=1, tier=sandbox.tier) as own:
        for name in ("cpp", "rust", "java", "bash"):
            if toolchains.why_not(name, sandbox.tier) is None:
                source = f"{CASES[name][-2].source}\n# {time.time()}"
                await own.run(Program(source=source, language=name), [Stdin("")] * 3, LIMITS)
    sleeping = [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "1000"]
    ]
    assert sleeping == []
    assert list(tmp_path.glob("coding-stages-*")) == []


@pytest.mark.sandbox
async def test_a_checker_in_cpp(sandbox):
    needs("cpp", sandbox.tier)
    files = Files(contents={"input": "a", "output": "b", "answer": "c"})
    (execution,) = await sandbox.run(
        Program(source=SOURCES["a checker in C++"], language="c++"), [files], LIMITS
    )
    assert execution.exit_code == 7


@pytest.mark.sandbox
async def test_a_compiled_program_reads_its_files(sandbox):
    """Also when its binary is already in the cache."""
    needs("cpp", sandbox.tier)
    if sandbox.tier is not Tier.namespaces:
        pytest.skip("no files below this tier")
    source = SOURCES["a reader in C++"]
    for content in (b"one", b"one", b"two"):
        program = Program(source=source, language="cpp", files={"data/in.txt": content})
        (execution,) = await sandbox.run(program, [Stdin("")], LIMITS)
        assert execution.stdout == content.decode(), execution.stderr_tail


@pytest.mark.sandbox
@pytest.mark.parametrize("first", ["", "#include <vector>\n"])
async def test_all_of_the_cpp_library_may_be_included_again(sandbox, first):
    needs("cpp", sandbox.tier)
    twice = "#include <bits/stdc++.h>\n" * 2
    program = Program(source=first + twice + 'int main() { std::cout << "hi"; }', language="cpp")
    (execution,) = await sandbox.run(program, [Stdin("")], LIMITS)
    assert execution.stdout == "hi", execution.stderr_tail


@pytest.mark.sandbox
async def test_what_is_not_run_is_refused_with_the_way_out():
    async with EmbeddedSandbox(workers=1, min_tier="rlimit", tier="rlimit") as sandbox:
        with pytest.raises(
            ConfigError, match=r"bash programs .* tier rlimit .*coding\.sandbox\.urls"
        ):
            await sandbox.run(Program(source="", language="bash"), [Stdin("")], LIMITS)
        with pytest.raises(ConfigError, match=r"no such language; there are python, c, "):
            await sandbox.run(Program(source="", language="cobol"), [Stdin("")], LIMITS)
        needs("cpp", sandbox.tier)
        with pytest.raises(DataError, match="Call inputs are for python"):
            await sandbox.run(Program(source="", language="cpp"), [Call(function="f")], LIMITS)


def test_binaries_are_whole_or_not_there_and_bounded(tmp_path):
    binaries = Binaries(tmp_path, max_bytes=3_000)
    for n in range(4):
        binaries.put(str(n), bytes([n]) * 900)
        os.utime(tmp_path / str(n), (n, n))
    assert [binaries.get(str(n)) is not None for n in range(4)] == [False, True, True, True]
    (tmp_path / "3").write_bytes((tmp_path / "3").read_bytes()[:-1])
    assert binaries.get("3") is None
    Binaries(tmp_path / "1" / "no folder").put("x", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pyhton", r"language=pyhton: no such language; did you mean python\?; .* python, c, cpp"),
        ("javscript", r"did you mean javascript\?"),
        ("Rust", r"language names are lower case; use rust"),
    ],
)
def test_a_language_that_does_not_exist_is_not_sent_to_a_server(name, said):
    with pytest.raises(ConfigError, match=said) as raised:
        languages.named(name)
    assert "coding.sandbox.urls" not in str(raised.value)


def test_every_language_of_servers_runs_here_or_is_sent_there():
    for one in languages.LANGUAGES.values():
        try:
            assert toolchains.toolchain(one.name, Tier.namespaces)
        except ConfigError as error:
            assert ("coding.sandbox.urls" in str(error)) is (one.on_servers is not None), one


@pytest.mark.sandbox
async def test_only_languages_that_this_machine_lacks_go_to_servers():
    server = Server(
        sandbox=fake(
            lambda source, given: (
                Execution(status=Status.finished, stdout="hello")
                if "hello" in source
                else program_of_a_probe(source, given)
            )
        )
    )
    embedded = EmbeddedSandbox(workers=1, tier="rlimit", min_tier="rlimit")
    test = Test(Stdin("a"), expected="hello")
    problem = replace(Problem.simple("Say hello.", tests=[test]), language="julia")
    async with WithServers(embedded, fusion(server)) as sandbox:
        (here,) = await sandbox.run(Program(source="print(input())"), [Stdin("a")], LIMITS)
        assert here.stdout == "a\n"
        assert server.asked == []  # not even probed
        grader = ExecutionGrader(sandbox, stop_early=True)
        verdict = await grader.grade_code(problem, 'println("hello")')
        assert (verdict.passed, verdict.sandbox) == (True, "fusion/rlimit/cpython-3.11")
        python = replace(problem, language="python")
        verdict = await grader.grade_code(python, 'print("hello")')
        assert (verdict.passed, verdict.sandbox) == (True, embedded.identity)
        with pytest.raises(ConfigError, match="no such language"):
            await sandbox.run(Program(source="", language="cobol"), [Stdin("")], LIMITS)


# ── detection of toolchains: an incomplete one is refused, and what is missing is named ───────────


JAVA_NAMES = tables("java_names")["names"]

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
    slot = ForeignSlot(Tier.seccomp, sys.executable, languages.named("go"), whole)
    with pytest.raises(ConfigError, match=r"^go programs do not run here: .*: no such tool$"):
        slot.start()


def test_a_refusal_names_the_way_out(monkeypatch):
    monkeypatch.setattr(toolchains, "_found", lambda _: "go is not installed")
    with pytest.raises(ConfigError, match=r"go programs do not run here: .*SandboxFusion"):
        toolchains.toolchain("golang", Tier.namespaces)
    assert "not go (go is not installed)" in toolchains.summary(Tier.namespaces)


@pytest.mark.parametrize(("source", "file", "main"), JAVA_NAMES)
def test_a_java_source_names_its_file_and_its_main_class(source, file, main):
    assert java.names_of(source) == (file, main)


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
