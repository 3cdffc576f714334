"""What an environment is: a place where commands run one after another, and files come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from coding_model_project.errors import SandboxError
from coding_model_project.harbor.environment.tree import Tree

DEFAULT_MEMORY_MB = 2048
DEFAULT_STORAGE_MB = 2048
DEFAULT_PROCESSES = 1024
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
