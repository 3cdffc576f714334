"""Base classes for your own environments: they turn a place that runs commands and moves files into one.

    class Mine(Places):                       # coding.harbor.environment=my_module:Mine
        identity = "harbor/mine"

        async def start(self, folder, config, env) -> Place: ...

A `Place` has six members. Everything else that a trial needs (folders, the verifier's turn) uses these
with tar files and shell scripts, so the place needs `sh`, `tar`, `sed`, and commands as root.
"""

from __future__ import annotations

import secrets
import shlex
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, Self

from coding_model_project.harbor.environment.base import (
    MAX_OUTPUT,
    CommandResult,
    Environment,
    EnvironmentFailed,
    Image,
)
from coding_model_project.harbor.environment.scripts import ANEW, END_OTHERS, FURNISH, PROCESSES
from coding_model_project.harbor.environment.tar_files import from_tar, to_tar
from coding_model_project.harbor.environment.tree import Tree, of_bytes
from coding_model_project.harbor.format.task_config import EnvironmentConfig

_MAX_BYTES = 64 << 20
_ROOT = "0"
_SCRIPT_S = 120.0
_KINDS = (
    'if [ -d "$0" ]; then echo d; elif [ -x "$0" ]; then echo x; elif [ -f "$0" ]; then echo f; fi'
)
_PACK = """packed=$0; cd "$1" || exit 1; shift; [ $# = 0 ] && set -- .
for one in "$@"; do shift; if [ -e "$one" ] || [ -L "$one" ]; then set -- "$@" "$one"; fi; done
[ $# = 0 ] || tar -cf "$packed" -- "$@" """
_UNPACK = 'mkdir -p "$1" && tar -xmf "$0" -C "$1"'


class Place(Protocol):
    """The environment of one trial. Serves one caller at a time."""

    @property
    def workdir(self) -> str:
        """Default working directory of commands."""
        ...

    async def run_command(
        self,
        command: str,
        *,
        cwd: str | None,
        env: Mapping[str, str],
        timeout_s: float | None,
        user: str | int | None,
        max_output: int,
    ) -> CommandResult:
        """Run a shell command to its end, or kill it after `timeout_s`.

        Raises:
            EnvironmentFailed: the place is lost, or could not start the command.
        """
        ...

    async def read_file(self, path: str, max_bytes: int) -> bytes:
        """Read a regular file.

        Raises:
            OSError: there is none, or it is longer than `max_bytes`.
            EnvironmentFailed: the place is lost.
        """
        ...

    async def write_file(self, path: str, content: bytes, mode: int) -> None:
        """Write a file, and make its parent folders.

        Raises:
            OSError: the path is not writable.
            EnvironmentFailed: the place is lost.
        """
        ...

    async def heartbeat(self) -> None:
        """Raise unless the place is alive.

        Raises:
            EnvironmentFailed: it is lost.
        """
        ...

    async def cleanup(self) -> None:
        """End every process and remove every file. Never fails; idempotent."""
        ...


class Places(ABC):
    """A factory of places for trials; subclass it for your own. See `base.Environments`."""

    identity: str
    """The `sandbox` of verdicts: "harbor/" and a name."""

    @abstractmethod
    async def start(self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]) -> Place:
        """Start a place for a task.

        Args:
            folder: the task's `environment/`, with or without a Dockerfile.
            config: its `[environment]`: `build_timeout_sec`, `docker_image`, limits, network.
            env: the task's variables, which every command receives.

        Raises:
            ImageError: the task needs something that these places do not support.
            EnvironmentFailed: the place could not be started.
        """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End remaining places. By default does nothing, since trials clean up after themselves."""
        return

    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> tuple[Environment, Image]:
        """See `Environments.create`."""
        place = await self.start(folder, config, env)
        made = _Completed(place, env, config.workdir, self.identity)
        try:
            await made.prepare()
        except BaseException:
            await place.cleanup()
            raise
        return made, Image(files=Tree(), workdir=made.workdir, env={}, user=None, notes=())


class _Completed:
    """An adapter from `Place` to `base.Environment`."""

    def __init__(
        self, place: Place, env: Mapping[str, str], workdir: str | None, identity: str
    ) -> None:
        self._place, self._env, self._identity = place, env, identity
        self._workdir = workdir or place.workdir
        self._own = ""
        """Ids of the processes that ran before the agent."""

    @property
    def workdir(self) -> str:
        return self._workdir

    async def prepare(self) -> None:
        """Make the folders that every environment has.

        Raises:
            EnvironmentFailed: the place is lost, or its image has no shell.
        """
        await self._sh(FURNISH, self._workdir)
        self._own = (await self._sh(PROCESSES)).strip()

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
        """See `Environment.run_command`."""
        return await self._place.run_command(
            command,
            cwd=cwd or self._workdir,
            env={**self._env, **(env or {})},
            timeout_s=timeout_s,
            user=user,
            max_output=max_output,
        )

    async def read_file(self, path: str, max_bytes: int = _MAX_BYTES) -> bytes:
        """See `Environment.read_file`."""
        return await self._place.read_file(self._at(path), max_bytes)

    async def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """See `Environment.write_file`."""
        await self._place.write_file(self._at(path), content, mode)

    async def read_tree(
        self, path: str, max_bytes: int = _MAX_BYTES, only: Sequence[str] | None = None
    ) -> Tree:
        """See `Environment.read_tree`."""
        where = self._at(path)
        kind = (await self._sh(_KINDS, where)).strip()
        if kind == "":
            raise FileNotFoundError(f"{path}: no such file")
        if kind != "d":
            content = await self._place.read_file(where, max_bytes)
            return of_bytes("", content, 0o755 if kind == "x" else 0o644)
        async with self._packed() as packed:
            await self._sh(_PACK, packed, where, *(only or ()))
            if not (await self._sh(_KINDS, packed)).strip():
                return Tree()
            content = await self._place.read_file(packed, 2 * max_bytes + (1 << 20))
        try:
            return from_tar(content, max_bytes)
        except OSError as error:
            raise OSError(f"{path}: {error}") from error

    async def write_tree(self, path: str, tree: Tree) -> None:
        """See `Environment.write_tree`."""
        async with self._packed() as packed:
            await self._place.write_file(packed, to_tar(tree), 0o600)
            ended = await self._run(_UNPACK, packed, self._at(path))
            if ended.exit_code != 0:
                raise OSError(f"{path}: {(ended.stderr or ended.stdout).strip()}")

    @asynccontextmanager
    async def _packed(self) -> AsyncIterator[str]:
        """Provide the name of a temporary tar file, and remove the file on exit."""
        name = f"/tmp/tree-{secrets.token_hex(8)}.tar"
        try:
            yield name
        finally:
            await self._run('rm -f "$0"', name)

    async def begin_verifier(self) -> None:
        """See `Environment.begin_verifier`."""
        await self._sh(END_OTHERS, self._own)
        await self._sh(ANEW)

    async def end_verifier(self) -> None:
        """See `Environment.end_verifier`."""
        await self.begin_verifier()

    async def heartbeat(self) -> None:
        """See `Environment.heartbeat`."""
        await self._place.heartbeat()

    async def cleanup(self) -> None:
        """See `Environment.cleanup`."""
        await self._place.cleanup()

    def _at(self, path: str) -> str:
        return path if path.startswith("/") else f"{self._workdir.rstrip('/')}/{path}"

    async def _run(self, script: str, *arguments: str) -> CommandResult:
        words = shlex.join(("sh", "-c", script, *arguments))
        return await self._place.run_command(
            words, cwd="/", env={}, timeout_s=_SCRIPT_S, user=_ROOT, max_output=MAX_OUTPUT
        )

    async def _sh(self, script: str, *arguments: str) -> str:
        """Run a script and return its output.

        Raises:
            EnvironmentFailed: the script failed, which it never does in a healthy place.
        """
        ended = await self._run(script, *arguments)
        if ended.exit_code != 0:
            output = " ".join((ended.stderr or ended.stdout).split())[-600:]
            raise EnvironmentFailed(f"{self._identity}: exit code {ended.exit_code}: {output}")
        return ended.stdout
