"""Definitions of environments by a task's `[environment]` and compose file; others are refused by name.

A compose file whose only service is `main` is like its Dockerfile with variables and a working directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from coding_model_project.errors import HarborError
from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.environment.base import WITH_HARBOR, ImageError
from coding_model_project.harbor.format.task_config import (
    MAIN_SERVICE,
    EnvironmentConfig,
    NetworkMode,
)

if TYPE_CHECKING:
    from coding_model_project.harbor.format.task import Task

_COMPOSE = "docker-compose.yaml"
_MAX_TEXT = 128 << 10
_STAYS = ("sleep infinity", "tail -f /dev/null")
"""Commands of compose files that only keep a container running."""

_DEFAULTS = {"build.context": (".", "./"), "build.dockerfile": ("Dockerfile",)}
"""Settings that are Harbor's defaults."""


class ServiceOperationsUnsupportedError(HarborError):
    """A task that uses services beside its main one."""


def defined(folder: Path, config: EnvironmentConfig, env: Mapping[str, str]) -> EnvironmentConfig:
    """Return an environment's settings with the variables and working directory of its compose file.

    Args:
        folder: contains a Dockerfile, and perhaps a compose file.
        env: the task's variables, resolved.

    Raises:
        ImageError: no environment of this project provides what the task needs.
    """
    if config.tpu is not None:
        raise ImageError(f"environment.tpu is not supported; {WITH_HARBOR}")
    if config.network_mode is NetworkMode.allowlist:
        raise ImageError(
            f"environment.network_mode = 'allowlist' is not supported, it needs Harbor's proxy; "
            f"{WITH_HARBOR}"
        )
    path = folder / _COMPOSE
    if not path.exists():
        return replace(config, env=env)
    main = _main_of(path)
    return replace(
        config,
        env={**_variables(path, main.get("environment")), **env},
        workdir=config.workdir or main.get("working_dir"),
    )


def one_network(task: Task) -> EnvironmentConfig:
    """Return the task's environment with the narrowest network that any of its phases asks for.

    An environment keeps one network for its lifetime; Harbor changes it between phases.
    """
    config = task.config.environment
    phases = [step.agent for step in task.steps]
    phases += [step.verifier for step in task.steps if step.verifier_environment is None]
    for mode in (NetworkMode.no_network, NetworkMode.allowlist):
        asking = [one for one in phases if one.network_mode is mode]
        if asking and config.network_mode is not NetworkMode.no_network:
            hosts = dict.fromkeys(host for one in asking for host in one.allowed_hosts or ())
            return replace(config, network_mode=mode, allowed_hosts=tuple(hosts) or None)
    return config


def refuse_other_services(task: Task) -> None:
    """Raise if a task collects from containers other than its main one.

    Raises:
        ServiceOperationsUnsupportedError: it does; the message names the key and the service.
    """
    for step in task.steps:
        asked = {
            "artifacts": [one.service for one in step.artifacts],
            "verifier.collect": [one.service for one in step.verifier.collect],
        }
        for key, services in asked.items():
            for service in services:
                if service not in (None, MAIN_SERVICE):
                    raise ServiceOperationsUnsupportedError(
                        f"{key}: service={service!r} is not supported, since environments here have "
                        f"only one service; {WITH_HARBOR}"
                    )


def _main_of(path: Path) -> Mapping[str, Any]:
    """Return the service `main` of a compose file, which adds to Harbor's: that builds the Dockerfile.

    Raises:
        ImageError: it has other services, or needs more than a Dockerfile, variables and a folder.
    """
    try:
        content = yaml.safe_load(tree.read(str(path), _MAX_TEXT))
        services = dict(content["services"])
        main = dict(services.pop(MAIN_SERVICE, None) or {})
    except (OSError, yaml.YAMLError, TypeError, ValueError, LookupError) as error:
        why = " ".join(str(error).split())
        raise ImageError(f"{path}: not a compose file with services: {why}") from error
    if services:
        raise _refused(path, f"a service beside `main` ({', '.join(map(str, services))})")
    if not (path.parent / "Dockerfile").exists():
        raise _refused(path, "a service `main` without a Dockerfile")
    build = main.pop("build", {})
    built = {"context": build} if isinstance(build, str) else dict(build)
    command = " ".join(_texts(main.pop("command", "")))
    if command and not command.endswith(_STAYS):
        raise _refused(path, f"main.command = {command!r}")
    left = {name: one for name, one in main.items() if name not in ("environment", "working_dir")}
    settings = {**left, **{f"build.{name}": one for name, one in built.items()}}
    for name, value in settings.items():
        # Harbor's own settings are variables that it sets, such as ${CPUS} and ${CONTEXT_DIR}.
        is_harbors = all("${" in text for text in _texts(value))
        if not is_harbors and value not in _DEFAULTS.get(name, ()):
            raise _refused(path, f"main.{name}")
    return main


def _refused(path: Path, what: str) -> ImageError:
    return ImageError(f"{path}: {what} is not supported; {WITH_HARBOR}")


def _texts(value: object) -> Iterator[str]:
    """Yield the scalars of a compose file's value as text."""
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str):
        for one in value:
            yield from _texts(one)
    else:
        yield str(value)


def _variables(path: Path, given: object) -> dict[str, str]:
    """Return the variables of `environment`: a list of NAME=VALUE, or a mapping.

    Raises:
        ImageError: a value comes from the host, or the form is another one.
    """
    pairs = dict(given) if isinstance(given, Mapping) else dict[str, str | None]()
    for text in () if isinstance(given, Mapping) else _texts(given or ()):
        name, equals, value = text.partition("=")
        pairs[name] = value if equals else None
    found: dict[str, str] = {}
    for name, value in pairs.items():
        if value is None or "$" in str(value):
            raise _refused(path, f"main.environment.{name} from the host")
        found[str(name)] = str(value)
    return found
