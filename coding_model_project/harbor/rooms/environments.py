"""The factory of environments in rooms: it makes images once, and a room for each trial."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from coding_model_project.grading.base import ROOMS
from coding_model_project.harbor.environment.base import (
    DEFAULT_MEMORY_MB,
    DEFAULT_STORAGE_MB,
    Environment,
    Environments,
    NeedsContainer,
    Resources,
)
from coding_model_project.harbor.environment.definition import defined
from coding_model_project.harbor.environment.once import Once
from coding_model_project.harbor.environment.tree import Tree
from coding_model_project.harbor.format.task_config import EnvironmentConfig
from coding_model_project.harbor.rooms.image import Image, Lay, read_image
from coding_model_project.harbor.rooms.rooms import Rooms

if TYPE_CHECKING:
    from coding_model_project.harbor.export.judging import ExportedJudge, Judged
    from coding_model_project.harbor.format.task import Step, Task

_KEPT_IMAGES = 64
_SHOWN_CHARS = 400


def planned(folder: Path, config: EnvironmentConfig) -> Image:
    """Return the definition of an environment's image. Starts nothing.

    Raises:
        NeedsContainer: rooms do not support the environment.
        ImageError: no engine can build it either.
    """
    if config.gpus:
        raise NeedsContainer("environment.gpus: rooms have no accelerators")
    return read_image(folder, config.docker_image)


class EmbeddedEnvironments(Environments):
    """A factory of environments in this machine's namespaces. See `base.Environments`.

    Their network is only their own loopback, whatever the task's network_mode. Otherwise rewards would
    depend on which hosts a task reaches that day.

    Args:
        agent: a folder that rooms mount at /opt/agent, read-only.
        shortcuts: judge exported tasks without running their verifiers (`harbor.export.judging`).
    """

    identity = f"harbor/{ROOMS}"

    def __init__(self, agent: Path | None = None, shortcuts: bool = True) -> None:
        self._agent, self._shortcuts = agent, shortcuts
        self._exported: ExportedJudge | None = None
        self._rooms = Rooms()
        self._stack = AsyncExitStack()
        self._images: Once[tuple[Path, str | None], tuple[Image, Tree]] = Once(_KEPT_IMAGES)

    async def __aenter__(self) -> Self:
        """Start the rooms' keeper.

        Raises:
            EnvironmentFailed: this machine's kernel does not allow rooms.
        """
        rooms = Rooms(self._agent and self._agent.resolve())
        self._rooms = await self._stack.enter_async_context(rooms)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def judge_apart(self, task: Task, step: Step, artifacts: Tree) -> Judged | None:
        """See `Environments.judge_apart`."""
        if not self._shortcuts:
            return None
        if self._exported is None:
            # Imported here: it takes longer than most commands, and few tasks need it.
            from coding_model_project.harbor.export.judging import ExportedJudge

            self._exported = ExportedJudge()
            self._stack.push_async_exit(self._exported)
        return await self._exported.judge(task, step, artifacts)

    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> Environment:
        """See `Environments.create`."""
        config = defined(folder, config, env)
        resources = Resources(
            memory_mb=config.memory_mb or DEFAULT_MEMORY_MB,
            storage_mb=config.storage_mb or DEFAULT_STORAGE_MB,
        )

        async def make() -> tuple[Image, Tree]:
            image = planned(folder, config)
            async with asyncio.timeout(config.build_timeout_sec):
                return image, await self._made(image, resources)

        image, files = await self._images.get((folder, config.docker_image), make)
        own = replace(
            image, workdir=config.workdir or image.workdir, env={**image.env, **config.env}
        )
        return await self._rooms.create(own, files, resources)

    async def _made(self, image: Image, resources: Resources) -> Tree:
        """Return an image's files, which are made in a room if it has commands.

        Raises:
            NeedsContainer: a command failed.
            EnvironmentFailed: the room was lost.
        """
        if all(isinstance(step, Lay) for step in image.steps):
            return image.files
        room = await self._rooms.create(Image(packages=image.packages), Tree(), resources)
        try:
            for step in image.steps:
                if isinstance(step, Lay):
                    await room.write_tree(step.path, step.files)
                    continue
                line = step.instruction
                command = shlex.join(("/bin/sh", "-c", line.text))
                ended = await room.run_command(command, cwd=step.cwd, env=step.env, user=step.user)
                if ended.exit_code != 0:
                    output = (ended.stderr or ended.stdout).strip()[-_SHOWN_CHARS:]
                    raise line.refused(
                        f"exited with code {ended.exit_code} in a room, which has no network and no "
                        f"other programs than this machine's: {output}"
                    )
            return await room.changes()
        finally:
            await room.cleanup()
