"""What an environment is: a place where commands run one after another, and files come and go."""

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
"""Bytes kept of each of a command's streams by default."""


class EnvironmentFailed(SandboxError):
    """The environment itself could not do its work; nothing is known about what ran in it."""


class Killed(StrEnum):
    """Why a command was ended from outside."""

    timeout = "timeout"
    memory = "memory"
    processes = "processes"
    interrupted = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command printed and how it ended."""

    stdout: str = ""
    stderr: str = ""
    """Of both, the middle is left out, and it says so, where they are longer than was asked for."""
    exit_code: int = 0
    """128 and the signal's number if one ended it."""
    killed: Killed | None = None

    @property
    def timed_out(self) -> bool:
        return self.killed is Killed.timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What an environment may use."""

    memory_mb: int = DEFAULT_MEMORY_MB
    storage_mb: int = DEFAULT_STORAGE_MB
    processes: int = DEFAULT_PROCESSES


class Environment(Protocol):
    """One trial's environment. Lives from `create` to `cleanup`; used by one caller at a time."""

    @property
    def workdir(self) -> str:
        """Where commands run that name no other place."""
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
        """Run a shell command to its end. What it leaves in the background goes on.

        Args:
            env: over the image's variables and the task's.
            timeout_s: after which it is killed with all it started.
            user: name, number or "name:group"; the image's by default.
            max_output: bytes kept of each stream.

        Raises:
            EnvironmentFailed: the environment is lost, or could not start it.
        """
        ...

    async def read_file(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """A regular file.

        Raises:
            OSError: there is none, by the exception that says why (`FileNotFoundError`, …).
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Make a file, and the folders above it.

        Raises:
            OSError: it may not be written.
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def read_tree(
        self, path: str, max_bytes: int = 64 << 20, only: Sequence[str] | None = None
    ) -> Tree:
        """A file, or a folder with all in it; links as links.

        Args:
            only: names in the folder; the others are left.

        Raises:
            OSError: there is nothing, or it is too much.
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def write_tree(self, path: str, tree: Tree) -> None:
        """Lay files over a folder.

        Raises:
            OSError: they may not be written.
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def begin_verifier(self) -> None:
        """End every process, and cover /tests and /logs/verifier with empty folders.

        What ran until here has written to neither, and cannot any more.

        Raises:
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def doubts(self) -> Sequence[str]:
        """Why the rewards of the verifier that has run may be the agent's own doing; empty if all that
        the verifier's processes ran is known to be trusted.

        Raises:
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def end_verifier(self) -> None:
        """End every process, and take away what the verifier had, before an agent goes on.

        Raises:
            EnvironmentFailed: the environment is lost.
        """
        ...

    async def heartbeat(self) -> None:
        """Returns if the environment is alive.

        Raises:
            EnvironmentFailed: it is lost.
        """
        ...

    async def cleanup(self) -> None:
        """End every process and remove every file. Never fails; twice is once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What every environment of a task starts from."""

    files: Tree
    """Laid over the root; of a container's image, those below /tests alone."""
    workdir: str
    env: Mapping[str, str]
    user: str | None
    notes: tuple[str, ...]
    """What of its definition was passed over."""
    packages: bool = False
    """True if rooms of it have the modules installed for this project (`image.PACKAGES_LABEL`)."""


@runtime_checkable
class JudgesApart(Protocol):
    """Environments that know the verifiers of some tasks, and give their rewards without running them."""

    async def judge_apart(self, task: Task, step: Step, artifacts: Tree) -> Judged | None:
        """Return the rewards that a verifier in an environment of its own would give; None to run it.

        Args:
            artifacts: all that the verifier would get of the agent's.
        """
        ...


class Environments(Protocol):
    """Makes environments. An async context manager; leaving ends all of them."""

    @property
    def identity(self) -> str:
        """As of `Sandbox.identity`."""
        ...

    async def __aenter__(self) -> Self:
        """Raises:
        EnvironmentFailed: there can be none on this machine; says which others there are.
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
        """A new environment, and what it was made of. Images are made once and kept.

        Args:
            folder: with a Dockerfile.
            config: the task's [environment], or its verifier's.
            env: variables for every command, over the image's: the resolved `config.env`.

        Raises:
            ImageError: the task asks for what these environments do not have, or a RUN failed.
            EnvironmentFailed: it could not be made.
        """
        ...
