"""The factory of environments in rooms: it makes images once, and a room for each trial."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

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
from coding_model_project.harbor.rooms.image import Execute, Lay, Plan, plan
from coding_model_project.harbor.rooms.rooms import Room, Rooms, Settings

if TYPE_CHECKING:
    from coding_model_project.harbor.export.judging import ExportedJudge, Judged
    from coding_model_project.harbor.format.task import Task
    from coding_model_project.harbor.step import Step

_KEPT_IMAGES = 64
_SHOWN_CHARS = 400


def planned(folder: Path, config: EnvironmentConfig) -> Plan:
    """Return the plan of an environment's image. Starts nothing.

    Raises:
        NeedsContainer: rooms do not support the environment.
        ImageError: no engine can build it either.
    """
    if config.gpus:
        raise NeedsContainer("environment.gpus: rooms have no accelerators")
    return plan(folder, config.docker_image)


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
        self._images: Once[tuple[Path, str | None], tuple[Plan, Tree]] = Once(_KEPT_IMAGES)

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
        """See `base.JudgesApart`."""
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

        def make() -> Coroutine[Any, Any, tuple[Plan, Tree]]:
            return self._make(planned(folder, config), resources, config.build_timeout_sec)

        image, files = await self._images.get((folder, config.docker_image), make)
        settings = Settings(
            workdir=config.workdir or image.workdir,
            env={**image.env, **config.env},
            user=image.user,
            files=files,
            notes=image.notes,
            resources=resources,
            packages=image.packages,
        )
        return await self._rooms.create(settings)

    async def _make(self, plan: Plan, resources: Resources, timeout_s: float) -> tuple[Plan, Tree]:
        """Return a plan with the files of its image, which is built in a room if it has commands.

        Raises:
            NeedsContainer: a command failed.
            EnvironmentFailed: the room was lost.
        """
        if any(isinstance(step, Execute) for step in plan.steps):
            async with asyncio.timeout(timeout_s):
                files = await self._built(plan, resources)
        else:
            files = Tree()
            for step in plan.steps:
                assert isinstance(step, Lay)
                files += step.files.below(step.path.strip("/."))
        return plan, files

    async def _built(self, plan: Plan, resources: Resources) -> Tree:
        room = await self._rooms.create(Settings(resources=resources, packages=plan.packages))
        try:
            for step in plan.steps:
                if isinstance(step, Lay):
                    await room.write_tree(step.path, step.files)
                else:
                    await _execute(room, step)
            return await room.changes()
        finally:
            await room.cleanup()


async def _execute(room: Room, step: Execute) -> None:
    command = shlex.join(("/bin/sh", "-c", step.instruction.text))
    ended = await room.run_command(command, cwd=step.cwd, env=step.env, user=step.user)
    if ended.exit_code != 0:
        output = (ended.stderr or ended.stdout).strip()[-_SHOWN_CHARS:]
        raise step.instruction.refused(
            f"exited with code {ended.exit_code} in a room, which has no network and no other programs "
            f"than this machine's: {output}"
        )
