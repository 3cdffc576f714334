"""task.toml, version 1.4 and older: its schema, with Harbor's defaults, coercions and checks.

The dataclasses keep Harbor's key names. pydantic coerces values as it does in Harbor ("20" is a number of
seconds). Unknown keys are ignored, with a warning. Values of what no environment of this project provides
are not checked, since such tasks are refused (`environment.definition`).

Source of every rule: Harbor 0.25.0, models/task/config.py.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)

from coding_model_project.contained import single
from coding_model_project.harbor.failures import InvalidTask

MAIN_SERVICE = "main"
DEPRECATED_KEYS = {
    "memory": "memory_mb",
    "storage": "storage_mb",
    "allow_internet": "network_mode",
}
"""Environment keys of older versions, which are read, and today's."""

_MB = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
_PACKAGE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")


# ── checks of values, which raise ValueError ──────────────────────────────────────────────────────


def _package_name(name: str) -> str:
    """Check a task's name in a registry: "org/name"."""
    if not _PACKAGE.fullmatch(name) or ".." in name:
        raise ValueError(
            f"{name!r} does not have the form 'org/name' (letters, digits, '-', '_', '.'; no '..')"
        )
    return name


def _migrated(given: Any, info: ValidationInfo) -> Any:
    """Return an environment's table without deprecated keys; append those to the list `info.context`."""
    if not isinstance(given, dict):
        return given
    table = {key: value for key, value in given.items() if key not in DEPRECATED_KEYS}
    for key in sorted(DEPRECATED_KEYS.keys() & given.keys()):
        if info.context is not None:
            info.context.append(key)
        if key != "allow_internet" and isinstance(given[key], str):
            size = _megabytes(given[key])
            if table.setdefault(f"{key}_mb", size) != size:
                raise ValueError(
                    f"{key} = {given[key]!r} contradicts {key}_mb = {table[f'{key}_mb']}"
                )
    online = TypeAdapter(bool | None).validate_python(given.get("allow_internet"))
    if online is not None and given.get("allowed_hosts") is None:
        table.setdefault("network_mode", "public" if online else "no-network")
    return table


def _megabytes(size: str) -> int:
    number, unit = size.strip()[:-1], size.strip()[-1:].upper()
    try:
        return int(float(number) * _MB[unit])
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"{size!r} is not a size such as '1G' or '512M'") from None


# ── the schema ────────────────────────────────────────────────────────────────────────────────────


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """[task]: the task's name and description in a registry."""

    name: Annotated[str, AfterValidator(_package_name)]
    version: str | None = None
    description: str = ""
    authors: tuple[Mapping[str, Any], ...] = ()
    keywords: tuple[str, ...] = ()


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


def _check_hosts(mode: NetworkMode | None, allowed: tuple[str, ...] | None) -> None:
    """Raise ValueError for hosts that would not be the only ones to be reached."""
    refused = allowed is not None if mode is None else bool(allowed)
    if refused and mode is not NetworkMode.allowlist:
        raise ValueError("allowed_hosts is only valid with network_mode = 'allowlist'")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentConfig:
    """[environment], and [verifier.environment]."""

    build_timeout_sec: float = 600.0
    docker_image: str | None = None
    os: Annotated[
        Literal["linux"],
        BeforeValidator(lambda given: given.lower() if isinstance(given, str) else given),
    ] = "linux"
    cpus: int | Annotated[float, Field(allow_inf_nan=False)] | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] | None = None
    tpu: Mapping[str, Any] | None = None
    network_mode: NetworkMode = NetworkMode.public
    allowed_hosts: tuple[str, ...] | None = None
    mcp_servers: tuple[Mapping[str, Any], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables, whose values may be ${VAR} or ${VAR:-default} (`task.resolve_env`)."""
    skills_dir: str | None = None
    healthcheck: Healthcheck | None = None
    workdir: str | None = None

    def __post_init__(self) -> None:
        _check_hosts(self.network_mode, self.allowed_hosts)


Environment = Annotated[EnvironmentConfig, BeforeValidator(_migrated)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """[agent]. network_mode defaults to the environment's."""

    timeout_sec: float | None = None
    user: User = None
    network_mode: NetworkMode | None = None
    allowed_hosts: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_hosts(self.network_mode, self.allowed_hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """[[verifier.collect]]: a command that runs after the agent, before collecting artifacts."""

    command: str
    service: str = MAIN_SERVICE
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
    allowed_hosts: tuple[str, ...] | None = None
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
    service: str | None = None

    def __post_init__(self) -> None:
        if ".." in PurePosixPath(self.source).parts:
            raise ValueError(f"artifact source {self.source!r} contains '..'")
        if self.destination is not None:
            _check_destination(self.destination)


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

    name: Annotated[str, AfterValidator(single)]
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
        # File systems may fold case and normalise Unicode.
        keys = [unicodedata.normalize("NFC", step.name).casefold() for step in self.steps or ()]
        if len(set(keys)) < len(keys):
            raise ValueError("two steps have the same name, up to case and Unicode normalisation")


# ── the file ──────────────────────────────────────────────────────────────────────────────────────


def parse_config(text: str) -> tuple[TaskConfig, tuple[str, ...]]:
    """Parse a task.toml.

    Returns:
        The configuration, and warnings about deprecated keys and about unknown keys, which are ignored.

    Raises:
        InvalidTask: the text is not TOML, or Harbor would reject a value; the message names the key.
    """
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidTask(f"not TOML: {error}") from error
    if "version" in given:  # before 1.0
        version = given.pop("version")
        given.setdefault("schema_version", version)
    deprecated: list[str] = []
    try:
        config = _adapter().validate_python(given, context=deprecated)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = "".join(f"{part}." for part in first["loc"])[:-1]
        message = first["msg"].removeprefix("Value error, ")
        raise InvalidTask(f"{key}: {message}" if key else message) from error
    warnings = [
        f"the key {key} is deprecated; write {DEPRECATED_KEYS[key]}"
        for key in dict.fromkeys(deprecated)
    ]
    unknown = list(_unknown(given, config, ""))
    if unknown:
        warnings.append(f"ignored unknown keys: {', '.join(unknown)}")
    return config, tuple(warnings)


def toml(config: TaskConfig) -> str:
    """Return a configuration as the text of a task.toml: the version, and non-default values."""
    table = _adapter().dump_python(config, exclude_defaults=True)
    return tomli_w.dumps({"schema_version": config.schema_version, **table})


@cache
def _adapter() -> TypeAdapter[TaskConfig]:
    return TypeAdapter(TaskConfig)


def _unknown(given: Any, value: Any, where: str) -> Iterator[str]:
    """Yield the keys of a table and its inner tables that their dataclasses do not have."""
    if isinstance(value, tuple) and isinstance(given, list):
        for number, (row, member) in enumerate(zip(given, value, strict=True)):
            yield from _unknown(row, member, f"{where}{number}.")
    if not is_dataclass(value) or not isinstance(given, dict):
        return
    known = {one.name for one in fields(value)}
    if isinstance(value, EnvironmentConfig):
        known |= DEPRECATED_KEYS.keys()
    for key, inner in given.items():
        if key not in known:
            yield where + key
        else:
            yield from _unknown(inner, getattr(value, key, None), f"{where}{key}.")
