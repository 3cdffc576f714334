"""Environments by name, from what a task says."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from coding_model_project.errors import ConfigError
from coding_model_project.harbor.containers.dockerfile import refuse_devices
from coding_model_project.harbor.environment.base import (
    DEFAULT_MEMORY_MB,
    DEFAULT_STORAGE_MB,
    Environment,
    EnvironmentKind,
    Environments,
    Image,
    Resources,
)
from coding_model_project.harbor.environment.image import Execute, Lay, Plan, plan
from coding_model_project.harbor.environment.once import Once
from coding_model_project.harbor.environment.tree import Tree
from coding_model_project.harbor.format.task_config import EnvironmentConfig
from coding_model_project.harbor.rooms.rooms import Room, Rooms, Settings

_KEPT_IMAGES = 64
_SAID = 400


def environments_of(kind: EnvironmentKind, rootfs: Path | None = None) -> Environments:
    """What makes environments of a kind.

    Raises:
        ConfigError: a root file system for containers, which have images.
    """
    if kind is EnvironmentKind.embedded:
        return EmbeddedEnvironments(rootfs)
    if rootfs is not None:
        raise ConfigError(
            f"--rootfs is for --environment embedded; {kind} has the task's own image"
        )
    # Here, since Harbor's own runner, which uses rooms, has not all that this takes.
    from coding_model_project.harbor.containers.containers import ContainerEnvironments

    return ContainerEnvironments(kind.value)


class EmbeddedEnvironments:
    """Makes environments in this machine's namespaces. See `base.Environments`.

    There is no network in them but their own loopback, whatever the task's network_mode: what a task
    may reach would depend on the day, and rewards with it.

    Args:
        rootfs: a root file system, as a folder or a tar file, in the place of the host's directories.
    """

    def __init__(self, rootfs: Path | None = None) -> None:
        self._rootfs = rootfs
        self._rooms = Rooms()
        self._stack = AsyncExitStack()
        self._images: Once[tuple[Path, str | None], Image] = Once(_KEPT_IMAGES)

    @property
    def identity(self) -> str:
        """As of `Sandbox.identity`."""
        return "harbor/embedded"

    async def __aenter__(self) -> Self:
        """Raises:
        EnvironmentFailed: this machine's kernel does not allow it.
        ConfigError: the root file system cannot be read.
        """
        async with AsyncExitStack() as stack:
            rootfs = self._rootfs
            if rootfs is not None and not rootfs.is_dir():
                folder = stack.enter_context(TemporaryDirectory(prefix="rootfs-"))
                rootfs = _unpacked(rootfs, Path(folder))
            self._rooms = await stack.enter_async_context(Rooms(rootfs and rootfs.resolve()))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> tuple[Environment, Image]:
        """See `Environments.create`."""
        refuse_devices(config)
        resources = Resources(
            memory_mb=config.memory_mb or DEFAULT_MEMORY_MB,
            storage_mb=config.storage_mb or DEFAULT_STORAGE_MB,
        )
        image = await self._image(folder, config, resources)
        settings = Settings(
            workdir=config.workdir or image.workdir,
            env={**image.env, **env},
            user=image.user,
            files=image.files,
            resources=resources,
        )
        return await self._rooms.create(settings), image

    async def _image(self, folder: Path, config: EnvironmentConfig, resources: Resources) -> Image:
        def make() -> Coroutine[Any, Any, Image]:
            made = plan(folder, config.docker_image, own_root=self._rootfs is not None)
            return self._make(made, resources, config.build_timeout_sec)

        return await self._images.get((folder, config.docker_image), make)

    async def _make(self, plan: Plan, resources: Resources, timeout_s: float) -> Image:
        """Follow a plan, in a room if it has commands.

        Raises:
            ImageError: a command failed.
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
        return Image(
            files=files, workdir=plan.workdir, env=plan.env, user=plan.user, notes=plan.notes
        )

    async def _built(self, plan: Plan, resources: Resources) -> Tree:
        room = await self._rooms.create(Settings(resources=resources))
        try:
            for step in plan.steps:
                if isinstance(step, Lay):
                    await room.write_tree(step.path, step.files)
                else:
                    await _execute(room, step)
            return await room.changes()
        finally:
            await room.cleanup()


def _unpacked(archive: Path, folder: Path) -> Path:
    """Raises:
    ConfigError: the file is no tar file that can be unpacked.
    """
    try:
        with tarfile.open(archive) as opened:
            members = (one for one in opened if not one.isdev())
            opened.extractall(folder, members, filter="tar")
    except (OSError, tarfile.TarError) as error:
        raise ConfigError(
            f"{archive}: no root file system as a folder or tar file: {error}"
        ) from error
    return folder


async def _execute(room: Room, step: Execute) -> None:
    ended = await room.run_command(step.command, cwd=step.cwd, env=step.env, user=step.user)
    if ended.exit_code != 0:
        said = (ended.stderr or ended.stdout).strip()[-_SAID:]
        raise step.instruction.error(
            f"ended with {ended.exit_code}, here where there is no network and the host's programs "
            f"cannot be changed: {said}"
        )
