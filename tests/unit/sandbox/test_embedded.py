"""The embedded sandbox: conformance at every tier, and what happens when its processes die."""

import asyncio
import importlib.metadata
import sys
import sysconfig
import tempfile
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from coding_model_project.errors import ConfigError, DataError, SandboxError
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox import conformance
from coding_model_project.sandbox.embedded import EmbeddedSandbox, slot
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.types import Asserts, Call, Limits, Opaque, Program, Status, Stdin
from tests.fakes import FakeSandbox
from tests.tables import tables
from tests.text_cases import sources

SOURCES = sources(__file__)

CASES = tables("sandbox")

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.xdist_group("embedded"),
]  # which starts sandboxes once

LIMITS = Limits(cpu_s=5, wall_s=10, memory_mb=256, output_kb=64)
ECHO = Program(source="print(input())")


@pytest.fixture(scope="module", params=[True, False], ids=["compiled loop", "in Python"])
async def sandbox(tier, request):
    if request.param and slot.compiled_loop() is None:
        pytest.skip("no C compiler is here")
    made = EmbeddedSandbox(workers=2, min_tier="rlimit", tier=tier, compiled_loop=request.param)
    async with made as sandbox:
        yield sandbox


async def outputs(sandbox: EmbeddedSandbox, program: Program, *texts: str) -> list[str]:
    return [e.stdout for e in await sandbox.run(program, [Stdin(t) for t in texts], LIMITS)]


async def test_conforms(sandbox, tier, request):
    """Other languages than Python do not use the loop: one of these runs them, and `test_languages`."""
    all_of_it = request.node.callspec.params["sandbox"] and tier is Tier.namespaces
    spoken = toolchains.available(tier) if all_of_it else ()
    assert [str(finding) for finding in await conformance.check(sandbox, spoken)] == []
    assert sandbox.identity == f"embedded/{tier}/cpython-3.{sys.version_info.minor}"


async def test_conformance_finds_what_is_wrong(sandbox):
    wrong = conformance.Case(name="wrong", source="print(1)", stdout="2\n")
    (execution,) = await sandbox.run(Program(source=wrong.source), [wrong.given], LIMITS)
    assert wrong.problem(execution) == r"printed '1\n' instead of '2\n'"


async def test_conformance_names_the_cases_in_which_a_sandbox_raises():
    def raises(*_):
        raise TypeError("a set is not JSON")

    found = [str(finding) for finding in await conformance.check(FakeSandbox(raises))]
    assert len(found) > 60
    assert all(one.endswith("TypeError: a set is not JSON") for one in found)
    with pytest.raises(SandboxError):
        await conformance.check(FakeSandbox(failures=1000))


async def test_an_exception_of_stop_when_is_the_callers(sandbox):
    def stop(_index, _execution):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await sandbox.run(ECHO, [Stdin("a"), Stdin("b")], LIMITS, stop_when=stop)
    assert await outputs(sandbox, ECHO, "a", "b") == ["a\n", "b\n"]


async def test_works_from_other_loops_and_threads(sandbox):
    def elsewhere() -> list[str]:
        return asyncio.run(outputs(sandbox, ECHO, "a"))

    assert await asyncio.to_thread(elsewhere) == ["a\n"]
    assert await outputs(sandbox, ECHO, "b") == ["b\n"]


async def test_host_environment_is_not_seen(sandbox, monkeypatch):
    source = (
        "import os, sys\nprint(sorted(os.environ), sys.argv, 'coding_model_project' in sys.modules)"
    )
    (text,) = await outputs(sandbox, Program(source=source), "")
    assert text == "['HOME', 'LANG', 'PATH', 'PYTHONHASHSEED'] ['main.py'] False\n"


async def test_tracebacks_do_not_show_the_sandbox(sandbox):
    (execution,) = await sandbox.run(Program(source="1 / 0"), [Stdin("")], LIMITS)
    assert execution.stderr_tail.splitlines() == [
        "Traceback (most recent call last):",
        '  File "main.py", line 1, in <module>',
        "ZeroDivisionError: division by zero",
    ]


async def test_a_program_cannot_pose_as_a_failed_sandbox(sandbox):
    for code in (1, 77, 113):
        program = Program(source=f"import os\nos._exit({code})")
        (execution,) = await sandbox.run(program, [Stdin("")], LIMITS)
        assert (execution.status, execution.exit_code) == (Status.raised, code)


async def test_an_answer_that_is_no_encoded_value_is_opaque(sandbox):
    source = "import os\ndef f():\n    os.write(3, b'{\"?\": 1}')\n    os._exit(0)"
    (execution,) = await sandbox.run(Program(source=source), [Call(function="f")], LIMITS)
    assert (execution.status, execution.value) == (Status.finished, Opaque("undecodable"))


async def test_a_call_may_return_numbers_of_numpy(any_sandbox):
    source = (
        "import numpy\ndef f(): return [numpy.int64(6), {numpy.bool_(True): numpy.ones(2).sum()}]"
    )
    limits = replace(LIMITS, memory_mb=1024)
    for n in (1, 2):  # by either way of forking
        calls = [Call(function="f")] * n
        found = await any_sandbox.run(Program(source=source), calls, limits)
        assert [(one.value, type(one.value[0])) for one in found] == [([6, {True: 2.0}], int)] * n


FORGED = SOURCES["numpy forged"]


async def test_what_calls_itself_numpy_is_plain_data_or_opaque(sandbox):
    calls = [Call(function="f", args=(which,)) for which in range(4)]
    found = [one.value for one in await sandbox.run(Program(source=FORGED), calls, LIMITS)]
    assert found == [5, Opaque("int64"), Opaque("int64"), 5]
    assert type(found[0]) is int


@pytest.fixture
def isolated(any_sandbox):
    """A sandbox whose programs may have files."""
    if any_sandbox.tier is not Tier.namespaces:
        pytest.skip("tier namespaces does not work here")
    return any_sandbox


async def test_files_are_there_to_read(isolated):
    program = Program(source="print(open('a/b.txt').read())", files={"a/b.txt": b"x" * 90_000})
    (execution,) = await isolated.run(program, [Stdin("")], Limits(output_kb=100))
    assert execution.stdout == "x" * 90_000 + "\n"


OWN_FILES = SOURCES["own files"]
OTHER_FILES = SOURCES["files of others"]


async def test_a_program_sets_modes_and_times_of_its_own_files_and_of_no_other(isolated):
    copies = ["0o100751 True", "0o100751 True", "0o100751 False", "0o100751 True"]
    assert await outputs(isolated, Program(source=OWN_FILES), "") == ["\n".join(copies) + "\n"]
    assert await outputs(isolated, Program(source=OTHER_FILES), "") == [""]


async def test_files_are_modules_to_import_for_the_program_but_not_for_its_tests(isolated):
    files = {
        "helper.py": b"x = 1",
        "package/__init__.py": b"from .part import y",
        "package/part.py": b"y = 2",
    }
    program = Program(source="import helper, package\nprint(helper.x, package.y)", files=files)
    assert await outputs(isolated, program, "") == ["1 2\n"]
    shadow = Program(
        source="def f(): return 1", files={"bisect.py": b"raise SystemExit", "own.py": b""}
    )
    for tests, passes in (("import bisect\nassert bisect.insort", True), ("import own", False)):
        (execution,) = await isolated.run(shadow, [Asserts(source=tests)], LIMITS)
        assert (execution.value is True) == passes, execution


async def test_many_files_are_laid_out(isolated):
    files = {f"{n % 40}/{n}.txt": b"x" for n in range(3_000)}
    assert await outputs(isolated, Program(source=SOURCES["count files"], files=files), "") == [
        "3000\n"
    ]


@pytest.mark.parametrize(("files", "why"), CASES["files cannot"])
async def test_files_that_cannot_be_laid_out_are_refused(isolated, files, why):
    with pytest.raises(DataError, match=why):
        program = Program(source="", files=dict.fromkeys(files, b""))
        await isolated.run(program, [Stdin("")], LIMITS)


async def test_an_environment_below_tmp_is_there_and_nothing_else_of_that_folder(tier):
    """A program's own /tmp covers it: a module that is imported late would be missing."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        venv.create(f"{folder}/env", with_pip=False, symlinks=True)
        (site,) = Path(folder).glob("env/lib/python3*/site-packages")
        (site / "late.py").write_text("found = 42")
        Path(folder, "secret").write_text("a")
        source, expected = "import late\nprint(late.found)\n", "42\n"
        if tier is not Tier.rlimit:  # which closes no files
            change = "__import__('os').chmod(late.__file__, 0)"
            for attempt in (f"open('{folder}/secret')", "open(late.__file__, 'w')", change):
                source += f"try: print({attempt})\nexcept OSError: print('no')\n"
                expected += "no\n"
        made = EmbeddedSandbox(
            workers=1, min_tier="rlimit", tier=tier, python=f"{folder}/env/bin/python"
        )
        async with made as sandbox:
            for inputs in ([Stdin("")], [Stdin("")] * 2):  # by either way of forking
                found = await sandbox.run(Program(source=source), inputs, LIMITS)
                assert [one.stdout for one in found] == [expected] * len(inputs)


async def test_names_of_tiers_and_starting_are_checked():
    with pytest.raises(ConfigError, match="fortress"):
        EmbeddedSandbox(min_tier="fortress")
    with pytest.raises(SandboxError, match="not started"):
        await EmbeddedSandbox().run(ECHO, [Stdin("")], LIMITS)
    with pytest.raises(ConfigError, match="below min_tier"):
        async with EmbeddedSandbox(tier="rlimit"):
            pass


async def test_preloaded_modules_are_there_and_named():
    program = Program(
        source="import sys, numpy\nprint('numpy' in sys.modules, numpy.ones(3).sum())"
    )
    async with EmbeddedSandbox(workers=1, preload=("numpy",)) as sandbox:
        assert sandbox.identity.endswith(f"+numpy-{importlib.metadata.version('numpy')}")
        for inputs in ([Stdin("")], [Stdin("")] * 2):
            found = await sandbox.run(program, inputs, LIMITS)
            assert [one.stdout for one in found] == ["True 3.0\n"] * len(inputs)


@pytest.mark.parametrize(("options", "says"), CASES["interpreter cannot"])
async def test_an_interpreter_that_cannot_be_used_is_refused_with_a_reason(options, says):
    with pytest.raises(ConfigError, match=says):
        async with EmbeddedSandbox(workers=1, **options):
            pass


async def test_an_old_interpreter_is_refused(tmp_path):
    (old := tmp_path / "python").write_text("#!/bin/sh\necho CPython 3.9.18\n")
    old.chmod(0o755)
    with pytest.raises(ConfigError, match=r"is CPython 3.9.18; it must be 3.11 or later"):
        async with EmbeddedSandbox(workers=1, python=str(old)):
            pass


async def test_a_preload_that_starts_threads_is_refused():
    source = (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    site = Path(sysconfig.get_path("purelib"))
    (module := site / "starts_a_thread_for_a_test.py").write_text(source)
    try:
        with pytest.raises(SandboxError, match="starts threads when it is imported"):
            async with EmbeddedSandbox(workers=1, preload=(module.stem,)):
                pass
    finally:
        module.unlink()
