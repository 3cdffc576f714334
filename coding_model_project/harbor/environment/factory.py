"""Task environments by name."""

from __future__ import annotations

from inspect import iscoroutinefunction
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import AUTO, ROOMS, TaskEnvironment
from coding_model_project.harbor.containers.containers import ContainerEnvironments
from coding_model_project.harbor.environment.auto import AutoEnvironments, lacking_engine
from coding_model_project.harbor.environment.base import (
    ENGINES,
    Environments,
    ImageError,
    NeedsContainer,
)
from coding_model_project.harbor.environment.definition import defined
from coding_model_project.harbor.environment.sandboxes import FactoryEnvironments
from coding_model_project.harbor.rooms.environments import EmbeddedEnvironments, planned

if TYPE_CHECKING:
    from coding_model_project.harbor.format.task import Task

_HARBOR_PREFIX = "harbor:"


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
        return AutoEnvironments(agent, at_once=where.containers, warm=where.warm)
    if name == ROOMS:
        return EmbeddedEnvironments(agent)
    if name in ENGINES:
        return ContainerEnvironments(name, at_once=where.containers, warm=where.warm)
    if name.startswith(_HARBOR_PREFIX):
        from coding_model_project.harbor.environment.of_harbor import HarborEnvironments

        return HarborEnvironments(name.removeprefix(_HARBOR_PREFIX))
    factory = _factory(name)
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


def _factory(name: str) -> Any:
    """Import a factory.

    Raises:
        ConfigError: the name cannot be imported, or is not callable.
    """
    module, colon, _ = name.partition(":")
    known = f"{AUTO}, {ROOMS}, {', '.join(ENGINES)}, harbor:TYPE or package.module:Factory"
    try:
        if not (module and colon):
            raise ValueError("no such name")
        factory = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"coding.harbor.environment={name}: {error}; use {known}") from error
    if not callable(factory):
        raise ConfigError(f"coding.harbor.environment={name}: not callable; use {known}")
    return factory
