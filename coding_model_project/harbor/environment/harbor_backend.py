"""Rooms as a Harbor back end, which runs its jobs without containers.

Harbor controls the sequence, but has no call for two steps that this back end adds. When Harbor uploads
the verifier's files to /tests, every process of the agent ends, and /tests and /logs/verifier are mounted
anew. In tasks with several steps neither happens, since Harbor does not signal when an agent continues.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path, PurePosixPath
from typing import override

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.environments.definition import require_agent_environment_definition

from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.environment.base import (
    Environment,
    EnvironmentFailed,
    Image,
)
from coding_model_project.harbor.environment.factory import EmbeddedEnvironments
from coding_model_project.harbor.environment.tree import of_files
from coding_model_project.harbor.format.task_config import EnvironmentConfig

TESTS = "/tests"
_DOWNLOAD_BYTES = 1 << 30


class _Shared:
    """One keeper for all trials of an event loop, which ends with the last of them."""

    def __init__(self) -> None:
        self._users = 0
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._environments: EmbeddedEnvironments | None = None

    async def take(self) -> EmbeddedEnvironments:
        async with self._lock:
            if self._environments is None:
                self._environments = await self._stack.enter_async_context(EmbeddedEnvironments())
            self._users += 1
            return self._environments

    async def give_back(self) -> None:
        async with self._lock:
            self._users -= 1
            if self._users == 0:
                self._environments = None
                await self._stack.aclose()


_SHARED: dict[asyncio.AbstractEventLoop, _Shared] = {}


class EmbeddedEnvironment(BaseEnvironment):
    """A room for one trial. It has no network, even if the task asks for one."""

    _room: Environment | None = None
    _image: Image | None = None
    _shared: _Shared | None = None

    @staticmethod
    @override
    def type() -> str:
        return "coding-model-project-embedded"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @override
    def _validate_definition(self) -> None:
        require_agent_environment_definition(
            self.environment_dir, docker_image=self.task_env_config.docker_image
        )

    @override
    async def start(self, force_build: bool) -> None:
        """Create the room.

        Raises:
            ImageError: the task needs a container engine.
            EnvironmentFailed: this machine does not allow rooms.
        """
        given = self.task_env_config
        config = EnvironmentConfig(
            build_timeout_sec=given.build_timeout_sec,
            docker_image=given.docker_image,
            memory_mb=given.memory_mb,
            storage_mb=given.storage_mb,
            gpus=given.gpus,
            workdir=given.workdir,
        )
        self._shared = _SHARED.setdefault(asyncio.get_running_loop(), _Shared())
        environments = await self._shared.take()
        made = await environments.create(self.environment_dir, config, self._startup_env())
        self._room, self._image = made
        for note in made[1].notes:
            self.logger.debug(note)

    @override
    async def stop(self, delete: bool) -> None:
        room, self._room = self._room, None
        shared, self._shared = self._shared, None
        if room is not None:
            await room.cleanup()
        if shared is not None:
            await shared.give_back()

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command.

        Raises:
            RuntimeError: the command timed out.
        """
        ended = await self._ready().run_command(
            command,
            cwd=cwd,
            env=self._merge_env(env),
            timeout_s=timeout_sec,
            user=self._resolve_user(user),
        )
        if ended.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        return ExecResult(
            stdout=ended.stdout or None, stderr=ended.stderr or None, return_code=ended.exit_code
        )

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        source = Path(source_path)
        mode = source.stat().st_mode & 0o777
        await self._ready().write_file(target_path, source.read_bytes(), mode)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        room, source = self._ready(), Path(source_dir)
        if PurePosixPath(target_dir) == PurePosixPath(TESTS) and not self._has_steps():
            await room.begin_verifier()
            assert self._image is not None
            await room.write_tree(TESTS, self._image.files.within("tests"))
        files = ((path.relative_to(source).as_posix(), path) for path in sorted(source.rglob("*")))
        await room.write_tree(target_dir, of_files(files))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        content = await self._ready().read_file(source_path, _DOWNLOAD_BYTES)
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        found = await self._ready().read_tree(source_dir, _DOWNLOAD_BYTES)
        await asyncio.to_thread(tree.keep, Path(target_dir), found)

    def _has_steps(self) -> bool:
        return (self.environment_dir.parent / "steps").is_dir()

    def _ready(self) -> Environment:
        if self._room is None:
            raise EnvironmentFailed("the environment is not started")
        return self._room
