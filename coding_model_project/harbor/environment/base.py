"""Protocols of task environments: places that run commands in sequence and transfer files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from coding_model_project.errors import SandboxError
from coding_model_project.harbor.environment.tree import Tree

if TYPE_CHECKING:
    from coding_model_project.harbor.export.judging import Judged
    from coding_model_project.harbor.format.task import Task
    from coding_model_project.harbor.format.task_config import EnvironmentConfig
    from coding_model_project.harbor.step import Step

DEFAULT_MEMORY_MB = 2048
DEFAULT_STORAGE_MB = 2048
DEFAULT_PROCESSES = 1024
ENGINES = ("docker", "podman")
MAX_OUTPUT = 1 << 20
"""Default maximum bytes kept from each stream of a command."""


class EnvironmentFailed(SandboxError):
    """A failure of the environment itself, which says nothing about the code that ran in it."""


class Killed(StrEnum):
    """The reason for killing a command."""

    timeout = "timeout"
    starved = "starved"
    """A verifier that used up its time, and more, with waiting for a core."""
    memory = "memory"
    processes = "processes"
    interrupted = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """A command's output and exit code."""

    stdout: str = ""
    stderr: str = ""
    """Output beyond the limit loses its middle in both streams; a note marks the gap."""
    exit_code: int = 0
    """128 plus the signal's number if a signal ended it."""
    killed: Killed | None = None
    over_memory: bool = False
    """True if the kernel killed one of its processes at the environment's own memory limit."""

    @property
    def timed_out(self) -> bool:
        return self.killed in (Killed.timeout, Killed.starved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resource limits of an environment."""

    memory_mb: int = DEFAULT_MEMORY_MB
    storage_mb: int = DEFAULT_STORAGE_MB
    processes: int = DEFAULT_PROCESSES


class Environment(Protocol):
    """One trial's environment. Lives from `create` to `cleanup`; serves one caller at a time."""

    @property
    def workdir(self) -> str:
        """Default working directory of commands."""
        ...

    async def run_command(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
        max_output: int = MAX_OUTPUT,
    ) -> CommandResult:
        """Run a shell command to its end. Its background processes continue.

        Args:
            env: variables that override the image's and the task's.
            timeout_s: time limit, after which the command and its descendants are killed. A room extends
                it by the time that they waited for a core, to at most five times as long.
            user: name, number or "name:group"; default: the image's.
            max_output: maximum bytes kept from each stream.

        Raises:
            EnvironmentFailed: the environment is lost, or could not start the command.
        """
        ...

    async def read_file(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """Read a regular file.

        Raises:
            OSError: there is none; the subclass gives the reason (`FileNotFoundError`, …).
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file, and make its parent folders.

        Raises:
            OSError: the path is not writable.
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def read_tree(
        self, path: str, max_bytes: int = 64 << 20, only: Sequence[str] | None = None
    ) -> Tree:
        """Read a file, or a folder with its contents; links stay links.

        Args:
            only: names in the folder to read; the others are skipped.

        Raises:
            OSError: the path does not exist, or its contents are too large.
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def write_tree(self, path: str, tree: Tree) -> None:
        """Copy files over a folder.

        Raises:
            OSError: the folder is not writable.
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def begin_verifier(self) -> None:
        """End every process, and replace /tests and /logs/verifier by empty folders.

        Processes that ran until now have not written to the new folders, and no longer can.

        Raises:
            OSError: the agent left files that prevent it.
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def end_verifier(self) -> None:
        """End every process, and remove the verifier's files, before an agent continues.

        Raises:
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def heartbeat(self) -> None:
        """Raise unless the environment is alive.

        Raises:
            EnvironmentFailed: it is lost.
        """
        ...

    async def cleanup(self) -> None:
        """End every process and remove every file. Never fails; idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The common starting point of a task's environments."""

    files: Tree
    """Files copied over the root; for a container's image, only those below /tests."""
    workdir: str
    env: Mapping[str, str]
    user: str | None
    notes: tuple[str, ...]
    """Parts of its definition that were ignored."""
    packages: bool = False
    """True if its rooms have this project's installed modules (`image.PACKAGES_LABEL`)."""


@runtime_checkable
class JudgesApart(Protocol):
    """Environments that can compute some tasks' rewards without running their verifiers."""

    async def judge_apart(self, task: Task, step: Step, artifacts: Tree) -> Judged | None:
        """Return the rewards that a separate verifier would give; None to run the verifier.

        Args:
            artifacts: all files of the agent that the verifier would receive.
        """
        ...


class Environments(Protocol):
    """A factory of environments. An async context manager; exiting ends all of them."""

    @property
    def identity(self) -> str:
        """See `Sandbox.identity`."""
        ...

    async def __aenter__(self) -> Self:
        """Start the factory.

        Raises:
            EnvironmentFailed: this machine does not support it; the message names alternatives.
        """
        ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> tuple[Environment, Image]:
        """Create an environment, and return it with its image. Images are built once and cached.

        Args:
            folder: contains a Dockerfile.
            config: the task's [environment], or its verifier's.
            env: variables for every command, which override the image's: the resolved `config.env`.

        Raises:
            ImageError: the task needs something that these environments do not support, or a RUN failed.
            EnvironmentFailed: the environment could not be created.
        """
        ...
