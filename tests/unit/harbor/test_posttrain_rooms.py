"""For post-training tasks: installed modules in rooms, and programs that run without memory files."""

import asyncio
from pathlib import Path

import pytest

from coding_model_project.harbor.export import kernel
from coding_model_project.harbor.format.task_config import EnvironmentConfig
from coding_model_project.harbor.posttrain.verifier.forked_sandbox import ForkedSandbox
from coding_model_project.harbor.rooms.image import PACKAGES_LABEL
from coding_model_project.types import Asserts, Call, Limits, Program, Status, Stdin
from tests.unit.harbor.rooms import run_in_environments

pytestmark = pytest.mark.sandbox

LOOK = """
import orjson, sys
print(orjson.__file__)
try:
    open(orjson.__file__, "a")
except OSError as error:
    print(error.strerror)
try:
    import coding_model_project
except ImportError:
    print("no package")
"""


def in_a_room(folder, label, use):
    (folder / "Dockerfile").write_text(f"FROM python:3.11-slim\n{label}WORKDIR /app\n")

    async def body(environments):
        room = await environments.create(folder, EnvironmentConfig(), {})
        try:
            return await use(room)
        finally:
            await room.cleanup()

    return run_in_environments(body)


def run_there(folder, label, script):
    return in_a_room(folder, label, lambda room: room.run_command(f"python3 -c '{script}'"))


def test_a_label_mounts_the_installed_modules_and_not_this_package(tmp_path):
    found = run_there(tmp_path, f"LABEL {PACKAGES_LABEL}=installed\n", LOOK)
    where, written, package = found.stdout.splitlines()
    assert where.endswith("/site-packages/orjson/__init__.py")
    assert written == "Read-only file system"
    assert package == "no package"


@pytest.mark.parametrize("label", ["", "LABEL maintainer=somebody\n"])
def test_without_it_a_room_has_none_of_them(tmp_path, label):
    found = run_there(tmp_path, label, "import transformers")
    assert found.exit_code == 1
    assert "ModuleNotFoundError" in found.stderr


def ran(source, *inputs, **limits):
    async def body():
        async with ForkedSandbox() as sandbox:
            return await sandbox.run(Program(source=source), inputs, Limits(**limits))

    return asyncio.run(body())


def test_programs_answer_as_in_any_sandbox():
    numbers = ran("print(int(input()) + 1)", Stdin("1"), Stdin("x"), Stdin("2"))
    assert [(one.status, one.stdout) for one in numbers] == [
        (Status.finished, "2\n"),
        (Status.raised, ""),
        (Status.finished, "3\n"),
    ]
    (called,) = ran("def f(x):\n    return (x, {1})", Call("f", ("a",)))
    assert called.value == ("a", {1})
    tests = (Asserts(f"assert f(1) == {n}", "f") for n in (1, 2))
    passes, fails = ran("def f(x):\n    return x", *tests)
    assert (passes.value, fails.value) == (True, "line 1: assert f(1) == 2")


def test_each_input_has_an_answer_whatever_the_program_does():
    inputs = (Stdin("1"), Stdin("2"))
    assert [one.status for one in ran("def f(:", *inputs)] == [Status.syntax_error] * 2
    endless = ran("while True: pass", Stdin("1"), cpu_s=0.5, wall_s=60)
    assert [one.status for one in endless] == [Status.cpu_timeout]
    sleeping = ran("import time; time.sleep(60)", Stdin("1"), wall_s=0.5)
    assert [one.status for one in sleeping] == [Status.wall_timeout]
    printing = ran("while True: print('x' * 1000)", Stdin("1"), output_kb=16)
    assert [one.status for one in printing] == [Status.output_limit]
    killing = "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(0.2)"
    assert Status.finished not in [one.status for one in ran(killing, *inputs)]
    assert len(ran(killing, *inputs)) == 2


CLOSE = """
import kernel
kernel.close_folders()
for path, mode in (("/tests/x", "r"), ("/logs/verifier/reward.txt", "w"), ("/app/y", "w")):
    try:
        open(path, mode).close()
        print(path)
    except PermissionError:
        print("no", path)
"""


def test_programs_of_a_verifier_lose_its_folders(tmp_path):
    async def use(room):
        await room.begin_verifier()
        await room.write_file("/tests/x", b"secret")
        await room.write_file("/app/kernel.py", Path(kernel.__file__).read_bytes())
        await room.write_file("/app/close.py", CLOSE.encode())
        return await room.run_command("python3 close.py; cat /tests/x")

    ended = in_a_room(tmp_path, "", use)
    assert ended.stdout == "no /tests/x\nno /logs/verifier/reward.txt\n/app/y\nsecret"
