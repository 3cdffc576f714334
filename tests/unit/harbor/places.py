"""This machine's rooms and container engine, or a skip without them."""

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path

import pytest

from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.environment.container import Engine
from coding_model_project.harbor.environment.containers import ContainerEnvironments
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments


class _Shared:
    """A keeper of rooms, and the loop in which it is used."""

    def __init__(self):
        self.runner, self.stack = asyncio.Runner(), AsyncExitStack()
        started = self.stack.enter_async_context(EmbeddedEnvironments())
        self.environments = self.runner.run(started)

    def close(self):
        with self.runner:
            self.runner.run(self.stack.aclose())


_shared: list[_Shared] = []


def run_in_environments(use):
    """Return the result of `await use(environments)`; skip if the machine lacks the tier.

    The tests of a module share the keeper of rooms; the module's last test ends it (`end_rooms`).
    """
    need_rooms()
    return _shared[0].runner.run(use(_shared[0].environments))


def need_rooms():
    """Skip the test if this machine has no rooms."""
    if not _shared:
        try:
            _shared.append(_Shared())
        except EnvironmentFailed as error:
            pytest.skip(f"no tier namespaces: {error}")


def end_rooms():
    """End the keeper with all its rooms."""
    while _shared:
        _shared.pop().close()


PROGRAMS = [
    *("bash", "cat", "chmod", "grep", "head", "id", "kill", "ls", "mkdir"),
    *("rm", "sed", "setsid", "sh", "sleep", "tail", "tar", "touch"),
]


def engine() -> str:
    """Return docker or podman, whichever responds; skip if neither does."""
    program, why = _engine()
    if program is None:
        pytest.skip(f"no container engine: {why}")
    return program


@cache
def _engine() -> tuple[str | None, str]:
    why = []
    for program in ("podman", "docker"):
        try:
            asyncio.run(Engine(program).find())
        except EnvironmentFailed as error:
            why.append(str(error))
        else:
            return program, ""
    return None, "; ".join(why)


def write_image(folder: Path, more: str = "", programs: Sequence[str] = PROGRAMS) -> None:
    """Write an environment folder with an image of this machine's programs, to avoid downloads."""
    root = folder / "root"
    for path in _needed(tuple(programs)):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    if not (root / "bin").exists():
        (root / "bin").symlink_to("usr/bin")
    (root / "etc").mkdir()
    (root / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\nann:x:7:7::/app:/bin/sh\n")
    (folder / "Dockerfile").write_text(f"FROM scratch\nCOPY root /\nWORKDIR /app\n{more}")


@cache
def _needed(programs: tuple[str, ...]) -> set[str]:
    """Return the paths of the programs and their libraries."""
    found = [shutil.which(name, path="/usr/bin:/bin") for name in programs]
    paths = [path for path in found if path is not None]
    assert len(paths) == len(programs)
    used = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=False).stdout
    return {*paths, *(word for word in used.split() if word[0] == "/" and word[-1] != ":")}


def run_in_containers(use):
    """Return the result of `await use(environments)`."""

    program = engine()

    async def body():
        async with ContainerEnvironments(program) as environments:
            return await use(environments)

    return asyncio.run(body())


def listed(program: str) -> list[str]:
    """Return this project's containers."""
    command = [program, "ps", "--all", "--filter", "name=coding-harbor", "--format", "{{.Names}}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split()
