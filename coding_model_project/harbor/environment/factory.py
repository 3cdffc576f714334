"""Task environments by name; `auto` is rooms for tasks that need only a system, containers for others."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import cache
from inspect import iscoroutinefunction
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Self

from coding_model_project.config_key import named_callable
from coding_model_project.grading.base import AUTO, ROOMS, TaskEnvironment
from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.environment.base import (
    ENGINES,
    Environment,
    EnvironmentFailed,
    Environments,
    ImageError,
    NeedsContainer,
)
from coding_model_project.harbor.environment.container import Engine
from coding_model_project.harbor.environment.containers import ContainerEnvironments
from coding_model_project.harbor.environment.definition import defined
from coding_model_project.harbor.environment.foreign import FactoryEnvironments, HarborEnvironments
from coding_model_project.harbor.format.task_config import EnvironmentConfig
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments, planned

if TYPE_CHECKING:
    from coding_model_project.harbor.format.task import Task

_HARBOR_PREFIX = "harbor:"

NO_ENGINE = (
    f"it needs a container, and no engine is here ({', '.join(ENGINES)}); install one, such as "
    "`apt-get install podman`, which works without root"
)

_SHOWN_CHARS = 240

_MAX_SCRIPT_BYTES = 1 << 20

_FETCHING = re.compile(
    r"^[^#\n]*?\b(apt(?:-get)?\s(?:-\S+\s+)*(?:install|update)|curl\s|wget\s|pip3?\sinstall|uvx\s|"
    r"uv\s(?:add|pip|run|sync|tool)|npm\s(?:ci|i|install)|npx\s)",
    re.MULTILINE,
)
"""Commands of shell scripts that fetch something."""


def environments_of(where: TaskEnvironment) -> Environments:
    """Make the environments of `coding.harbor.environment` or `--environment`; entering starts them.

    Args:
        where: name: `auto`, `rooms`, `docker`, `podman`, `harbor:TYPE` for one of Harbor's own
            environments, or `package.module:Factory`: a `SandboxFactory`, if it is an async function,
            else called without arguments.

    Raises:
        ConfigError: the name is unknown.
    """
    name = where.name
    agent = Path(where.agent) if where.agent else None
    if name == AUTO:
        return AutoEnvironments(agent, at_once=where.containers)
    if name == ROOMS:
        return EmbeddedEnvironments(agent)
    if name in ENGINES:
        return ContainerEnvironments(name, at_once=where.containers)
    if name.startswith(_HARBOR_PREFIX):
        return HarborEnvironments(name.removeprefix(_HARBOR_PREFIX))
    known = f"{AUTO}, {ROOMS}, {', '.join(ENGINES)}, harbor:TYPE or package.module:Factory"
    factory = named_callable("coding.harbor.environment", name, known)
    return FactoryEnvironments(factory) if iscoroutinefunction(factory) else factory()


def check_supported(where: str, task: Task) -> None:
    """Raise if environments of this name can never run a task. Starts nothing.

    Args:
        where: see `environments_of`; only this project's environments are checked.

    Raises:
        ImageError: the task needs what they do not support, or a container where no engine responds.
    """
    if where not in (AUTO, ROOMS, *ENGINES):
        return
    places = {task.environment_dir: task.config.environment}
    for step in task.steps:
        if step.verifier_environment is not None and step.verifier_image is not None:
            places.setdefault(step.verifier_image, step.verifier_environment)
    for folder, config in places.items():
        defined(folder, config, {})
        if where in ENGINES:
            continue
        try:
            planned(folder, config)
        except NeedsContainer as error:
            if where == ROOMS:
                raise
            if (lacking := lacking_engine()) is not None:
                raise ImageError(f"{error.why}; {lacking}") from error


async def responding_engine() -> str | None:
    """Return the first container engine that responds; None if this machine has none.

    Raises:
        EnvironmentFailed: it has some, and none responds.
    """
    failures: list[str] = []
    for program in filter(shutil.which, ENGINES):
        try:
            await Engine(program).find()
        except EnvironmentFailed as error:
            failures.append(str(error))
        else:
            return program
    if failures:
        raise EnvironmentFailed("; ".join(failures))
    return None


@cache
def lacking_engine() -> str | None:
    """Return why this machine has no container engine, outside an event loop; None if it has one."""
    try:
        return NO_ENGINE if asyncio.run(responding_engine()) is None else None
    except EnvironmentFailed as error:
        return f"it needs a container, and {error}"


def _fetches(task: Path) -> NeedsContainer | None:
    """Return why a task's verifiers need a network, which rooms do not have; None if none seems to."""
    for script in (task / "tests" / "test.sh", *sorted(task.glob("steps/*/tests/test.sh"))):
        try:
            text = tree.read(str(script), _MAX_SCRIPT_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        if found := _FETCHING.search(text):
            line = text.count("\n", 0, found.start(1)) + 1
            return NeedsContainer(f"{script}:{line}: {found[1].strip()} needs a network")
    return None


class AutoEnvironments(Environments):
    """A factory of environments that selects one for each image. See `base.Environments`.

    Args:
        agent: see `EmbeddedEnvironments`.
        at_once: see `ContainerEnvironments`.
    """

    identity = f"harbor/{AUTO}"

    def __init__(self, agent: Path | None = None, *, at_once: int | None = None) -> None:
        self._agent, self._at_once = agent, at_once
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._rooms: EmbeddedEnvironments | None = None
        self._containers: ContainerEnvironments | None = None
        self._refused: dict[tuple[Path, str | None], NeedsContainer] = {}
        """Images that rooms cannot provide, which are not tried again."""

    async def __aenter__(self) -> Self:
        """Start rooms. An engine is looked for when a task first needs it.

        Raises:
            EnvironmentFailed: this machine has neither rooms nor a container engine.
        """
        try:
            rooms = EmbeddedEnvironments(self._agent)
            self._rooms = await self._stack.enter_async_context(rooms)
        except EnvironmentFailed:
            if await self._engine() is None:
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> Environment:
        """See `Environments.create`."""
        key = (folder, config.docker_image)
        if self._rooms is not None and key not in self._refused:
            fetches = _fetches(folder.parent)
            if fetches is None or await self._engine() is None:
                try:
                    return await self._rooms.create(folder, config, env)
                except NeedsContainer as error:
                    self._refused[key] = error
            else:
                self._refused[key] = fetches
        engine = await self._engine()
        if engine is None:
            raise ImageError(f"{self._refused[key].why}; {NO_ENGINE}")
        try:
            return await engine.create(folder, config, env)
        except (ImageError, EnvironmentFailed) as error:
            if key not in self._refused:
                raise
            why = shorten(self._refused[key].why, _SHOWN_CHARS, placeholder=" …")
            raise type(error)(f"{error}; it needs a container, since {why}") from error

    async def _engine(self) -> ContainerEnvironments | None:
        async with self._starting:
            program = None if self._containers else await responding_engine()
            if program is not None:
                made = ContainerEnvironments(program, at_once=self._at_once)
                self._containers = await self._stack.enter_async_context(made)
        return self._containers
