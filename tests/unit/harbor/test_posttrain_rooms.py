"""For post-training tasks: installed modules in rooms, and the sandbox that judges programs there."""

import gzip

import pytest

from coding_model_project.harbor.environment.tree import from_tar
from coding_model_project.harbor.format.task_config import EnvironmentConfig
from coding_model_project.harbor.posttrain.generating import _package
from coding_model_project.harbor.rooms.image import PACKAGES_LABEL
from tests.text_cases import sources
from tests.unit.harbor.places import run_in_environments

SOURCES = sources(__file__)

pytestmark = pytest.mark.sandbox

LOOK = SOURCES["look"]


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


RUN = SOURCES["run"]


def test_the_embedded_sandbox_runs_programs_in_a_room(tmp_path):
    """There it has neither namespaces nor memory files."""

    async def use(room):
        await room.write_tree("/opt/package", from_tar(gzip.decompress(_package()), 1 << 30))
        await room.begin_verifier()
        await room.write_file("/tests/x", b"secret")
        await room.write_file("/app/run.py", RUN.encode())
        return await room.run_command("PYTHONPATH=/opt/package python3 run.py; cat /tests/x")

    ended = in_a_room(tmp_path, f"LABEL {PACKAGES_LABEL}=installed\n", use)
    lines = ["seccomp", "['no', 'no', 'no', 'no'] ('a', {1}) True", "secret"]
    assert ended.stdout.splitlines() == lines, ended.stderr
