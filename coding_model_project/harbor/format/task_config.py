"""The schema of task.toml, version 1.4 and older, with Harbor's defaults, coercions and checks.

The dataclasses keep Harbor's key names. pydantic coerces values as it does in Harbor ("20" is a number of
seconds). Unknown keys are ignored, with a warning.

Source of every rule: Harbor 0.25.0, models/task/config.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from coding_model_project.harbor.format.legacy import migrated
from coding_model_project.harbor.format.names import (
    check_header,
    hosts,
    package_name,
    service_name,
    step_key,
    step_name,
)

MAIN_SERVICE = "main"
Hosts = Annotated[tuple[str, ...], AfterValidator(hosts)]
User = str | int | None


class NetworkMode(StrEnum):
    """The hosts that a phase may reach."""

    no_network = "no-network"
    public = "public"
    allowlist = "allowlist"


class VerifierMode(StrEnum):
    """The verifier's environment: the agent's, or a fresh one."""

    shared = "shared"
    separate = "separate"


class RewardStrategy(StrEnum):
    """The rule that combines the steps' rewards into the trial's."""

    mean = "mean"
    final = "final"


class TaskOS(StrEnum):
    """The operating system of the task's container."""

    linux = "linux"
    windows = "windows"


def _check_hosts(mode: NetworkMode | None, allowed: tuple[str, ...] | None) -> None:
    refused = allowed is not None if mode is None else bool(allowed)
    if refused and mode is not NetworkMode.allowlist:
        raise ValueError("allowed_hosts is only valid with network_mode = 'allowlist'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    name: str
    email: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """[task]: the task's name and description in a registry."""

    name: Annotated[str, AfterValidator(package_name)]
    version: str | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.version == "":
            raise ValueError("version must not be empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthcheck:
    """A command that must exit 0 before the agent starts, with the keys of Docker's HEALTHCHECK."""

    command: str
    interval_sec: float = 5.0
    timeout_sec: float = 30.0
    start_period_sec: float = 0.0
    """Period in which failures do not count."""
    start_interval_sec: float = 5.0
    retries: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tpu:
    type: str
    topology: Annotated[str, AfterValidator(str.strip)]

    def __post_init__(self) -> None:
        if not self.type or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", self.topology):
            raise ValueError("a TPU needs a type and a topology such as '2x4'")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    name: str
    transport: Annotated[
        Literal["stdio", "sse", "streamable-http"],
        BeforeValidator(lambda given: "streamable-http" if given == "http" else given),
    ] = "sse"
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needed = "command" if self.transport == "stdio" else "url"
        if not getattr(self, needed):
            raise ValueError(f"transport {self.transport!r} needs '{needed}'")
        if self.transport == "stdio" and self.headers:
            raise ValueError("headers are for HTTP transports only")
        for name, value in self.headers.items():
            check_header(name, value)


def _cpus(value: int | float | None) -> int | float | None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("cpus must be finite")
        if value.is_integer():
            return int(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentConfig:
    """[environment], and [verifier.environment]."""

    build_timeout_sec: float = 600.0
    docker_image: str | None = None
    os: Annotated[
        TaskOS, BeforeValidator(lambda given: given.lower() if isinstance(given, str) else given)
    ] = TaskOS.linux
    cpus: Annotated[int | float | None, AfterValidator(_cpus)] = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] | None = None
    tpu: Tpu | None = None
    network_mode: NetworkMode = NetworkMode.public
    allowed_hosts: Hosts | None = None
    mcp_servers: tuple[McpServer, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables, whose values may be ${VAR} or ${VAR:-default} (`task.resolve_env`)."""
    skills_dir: str | None = None
    healthcheck: Healthcheck | None = None
    workdir: str | None = None

    def __post_init__(self) -> None:
        _check_hosts(self.network_mode, self.allowed_hosts)


Environment = Annotated[EnvironmentConfig, BeforeValidator(migrated)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """[agent]. network_mode defaults to the environment's."""

    timeout_sec: float | None = None
    user: User = None
    network_mode: NetworkMode | None = None
    allowed_hosts: Hosts | None = None

    def __post_init__(self) -> None:
        _check_hosts(self.network_mode, self.allowed_hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """[[verifier.collect]]: a command that runs after the agent, before collecting artifacts."""

    command: str
    service: Annotated[str, AfterValidator(service_name)] = MAIN_SERVICE
    timeout_sec: float = 60.0
    user: User = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierConfig:
    """[verifier]. network_mode defaults to its environment's."""

    timeout_sec: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables, as in `EnvironmentConfig.env`."""
    user: User = None
    network_mode: NetworkMode | None = None
    allowed_hosts: Hosts | None = None
    environment_mode: VerifierMode | None = None
    environment: Environment | None = None
    collect: tuple[Collect, ...] = ()

    def __post_init__(self) -> None:
        _check_hosts(self.network_mode, self.allowed_hosts)
        if self.environment_mode is VerifierMode.shared and self.environment is not None:
            raise ValueError("environment_mode = 'shared' contradicts [verifier.environment]")

    @property
    def mode(self) -> VerifierMode | None:
        """The verifier's environment, if this section sets it."""
        implied = None if self.environment is None else VerifierMode.separate
        return self.environment_mode or implied


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionConfig:
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A path to copy out of the environment; default destination: the same path under artifacts/."""

    source: str
    destination: Annotated[str | None, AfterValidator(lambda given: given or None)] = None
    exclude: tuple[str, ...] = ()
    service: Annotated[str | None, AfterValidator(service_name)] = None

    def __post_init__(self) -> None:
        if ".." in PurePosixPath(self.source).parts:
            raise ValueError(f"artifact source {self.source!r} contains '..'")
        if self.destination is not None:
            _check_destination(self.destination)
        absolute = re.match(r"/|[A-Za-z]:[/\\]", self.source)
        if self.service not in (None, MAIN_SERVICE) and not absolute:
            raise ValueError(f"artifact source {self.source!r} of a service must be absolute")


def _check_destination(given: str) -> None:
    path = PurePosixPath(given)
    escapes = "\\" in given or path.is_absolute() or not path.parts or ".." in path.parts
    if escapes or given.rstrip("/") == "manifest.json":
        raise ValueError(
            f"artifact destination {given!r} must be a relative path other than manifest.json"
        )


Artifacts = tuple[
    Annotated[
        Artifact,
        BeforeValidator(lambda given: {"source": given} if isinstance(given, str) else given),
    ],
    ...,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConfig:
    """[[steps]]."""

    name: Annotated[str, AfterValidator(step_name)]
    agent: AgentConfig = field(default_factory=AgentConfig)
    verifier: VerifierConfig = field(default_factory=VerifierConfig)
    min_reward: float | Mapping[str, float] | None = None
    """Minimum rewards of this step for later steps to run; a number applies to the key `reward`."""
    healthcheck: Healthcheck | None = None
    artifacts: Artifacts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """A whole task.toml. An empty file is valid."""

    schema_version: str = "1.4"
    task: Package | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    verifier: VerifierConfig = field(default_factory=VerifierConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    environment: Environment = field(default_factory=EnvironmentConfig)
    solution: SolutionConfig = field(default_factory=SolutionConfig)
    source: str | None = None
    multi_step_reward_strategy: RewardStrategy | None = None
    """Rule for the trial's rewards; None means the mean."""
    steps: tuple[StepConfig, ...] | None = None
    artifacts: Artifacts = ()

    def __post_init__(self) -> None:
        keys = [step_key(step.name) for step in self.steps or ()]
        if len(set(keys)) < len(keys):
            raise ValueError("two steps have the same name, up to case and Unicode normalisation")
