"""Task environments by name."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Self

from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import ROOMS, TaskEnvironment
from coding_model_project.harbor.containers.containers import ContainerEnvironments
from coding_model_project.harbor.containers.dockerfile import refuse_devices, refuse_services
from coding_model_project.harbor.environment.base import (
    DEFAULT_MEMORY_MB,
    DEFAULT_STORAGE_MB,
    ENGINES,
    Environment,
    Environments,
    Image,
    Resources,
)
from coding_model_project.harbor.environment.image import Execute, Lay, Plan, plan
from coding_model_project.harbor.environment.once import Once
from coding_model_project.harbor.environment.tree import Tree
from coding_model_project.harbor.format.task_config import EnvironmentConfig
from coding_model_project.harbor.rooms.rooms import Room, Rooms, Settings

if TYPE_CHECKING:
    from coding_model_project.harbor.export.judging import ExportedJudge, Judged
    from coding_model_project.harbor.format.task import Task
    from coding_model_project.harbor.step import Step

_FORMER_NAME = "embedded"
_HARBOR_PREFIX = "harbor:"
_KEPT_IMAGES = 64
_SHOWN_CHARS = 400


def environments_of(where: TaskEnvironment) -> Environments:
    """Make the environments of `coding.harbor.environment` or `--environment`; entering starts them.

    Args:
        where: name: `rooms`, `docker`, `podman`, `harbor:TYPE` for one of Harbor's own environments, or
            `package.module:Factory`, which is called without arguments.

    Raises:
        ConfigError: the name is unknown.
    """
    name = where.name
    if name in (ROOMS, _FORMER_NAME):
        return EmbeddedEnvironments(Path(where.agent) if where.agent else None)
    if name in ENGINES:
        return ContainerEnvironments(name, at_once=where.containers, warm=where.warm)
    if name.startswith(_HARBOR_PREFIX):
        from coding_model_project.harbor.environment.of_harbor import HarborPlaces

        return HarborPlaces(name.removeprefix(_HARBOR_PREFIX))
    return _factory(name)()


def check_supported(where: str, task: Task) -> None:
    """Raise if environments of this name can never run a task. Starts nothing.

    Args:
        where: see `environments_of`; only this project's environments are checked.

    Raises:
        ImageError: the task needs accelerators, several services, or an image or instruction that rooms
            do not support.
    """
    if where not in (ROOMS, _FORMER_NAME, *ENGINES):
        return
    places = {task.environment_dir: task.config.environment}
    for step in task.steps:
        if step.verifier_environment is not None and step.verifier_image is not None:
            places.setdefault(step.verifier_image, step.verifier_environment)
    for folder, config in places.items():
        refuse_devices(config)
        refuse_services(folder)
        if where not in ENGINES:
            plan(folder, config.docker_image)


def _factory(name: str) -> Any:
    """Import a factory.

    Raises:
        ConfigError: the name cannot be imported, or is not callable.
    """
    module, colon, _ = name.partition(":")
    known = f"{ROOMS}, {', '.join(ENGINES)}, harbor:TYPE or package.module:Factory"
    try:
        if not (module and colon):
            raise ValueError("no such name")
        factory = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"coding.harbor.environment={name}: {error}; use {known}") from error
    if not callable(factory):
        raise ConfigError(f"coding.harbor.environment={name}: not callable; use {known}")
    return factory


class EmbeddedEnvironments:
    """A factory of environments in this machine's namespaces. See `base.Environments`.

    Their network is only their own loopback, whatever the task's network_mode. Otherwise rewards would
    depend on which hosts a task reaches that day.

    Args:
        agent: a folder that rooms mount at /opt/agent, read-only.
        shortcuts: judge exported tasks without running their verifiers (`harbor.export.judging`).
    """

    def __init__(self, agent: Path | None = None, *, shortcuts: bool = True) -> None:
        self._agent, self._shortcuts = agent, shortcuts
        self._exported: ExportedJudge | None = None
        self._rooms = Rooms()
        self._stack = AsyncExitStack()
        self._images: Once[tuple[Path, str | None], Image] = Once(_KEPT_IMAGES)

    @property
    def identity(self) -> str:
        """See `Sandbox.identity`."""
        return f"harbor/{ROOMS}"

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
            packages=image.packages,
        )
        return await self._rooms.create(settings), image

    async def _image(self, folder: Path, config: EnvironmentConfig, resources: Resources) -> Image:
        def make() -> Coroutine[Any, Any, Image]:
            made = plan(folder, config.docker_image)
            return self._make(made, resources, config.build_timeout_sec)

        return await self._images.get((folder, config.docker_image), make)

    async def _make(self, plan: Plan, resources: Resources, timeout_s: float) -> Image:
        """Build an image from a plan, in a room if it has commands.

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
            files=files,
            workdir=plan.workdir,
            env=plan.env,
            user=plan.user,
            notes=plan.notes,
            packages=plan.packages,
        )

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
    ended = await room.run_command(step.command, cwd=step.cwd, env=step.env, user=step.user)
    if ended.exit_code != 0:
        output = (ended.stderr or ended.stdout).strip()[-_SHOWN_CHARS:]
        raise step.instruction.error(
            f"exited with code {ended.exit_code}; rooms have no network and cannot change the host's "
            f"programs: {output}"
        )
