"""The protocol of task environments: they run commands in sequence, and transfer files."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, TypedDict, Unpack

from coding_model_project.errors import HarborError, SandboxError
from coding_model_project.harbor.environment.tree import Tree, from_tar, of_bytes, to_tar
from coding_model_project.harbor.failures import BUILD_FAILED, REGISTRY_UNREACHABLE

if TYPE_CHECKING:
    from coding_model_project.harbor.format.task_config import EnvironmentConfig, Healthcheck

DEFAULT_MEMORY_MB = 2048
DEFAULT_STORAGE_MB = 2048
DEFAULT_PROCESSES = 1024
ENGINES = ("podman", "docker")
"""Container engines, in the order in which `auto` looks for them."""

WITH_CONTAINER = "run the task in a container: --environment podman"
"""Remedy for tasks that rooms do not support."""

WITH_HARBOR = "run the task with Harbor itself: harbor run -e docker"
"""Remedy for tasks that no environment of this project supports."""

MAX_OUTPUT = 1 << 20
"""Default maximum bytes kept from each stream of a command."""
MAX_FILE_BYTES = 64 << 20
"""Default maximum bytes of a file or folder that is read."""

_SCRIPT_S = 120.0
"""Timeout of a script of ours, in wall seconds."""

_SHOWN_CHARS = 600

_LISTENS = "0A"
"""The kernel's state of a TCP socket that accepts connections."""

# Scripts that run as root, for any POSIX shell:

FURNISH = """mkdir -p /logs/agent /logs/verifier /logs/artifacts /solution "$0"
chmod 777 /logs /logs/*"""
"""A script that makes the folders of every environment, and the working directory $0."""

ANEW = """cd /
rm -rf tests .pytest.ini conftest.py pyproject.toml pytest.ini setup.cfg setup.py tox.ini
[ -d /logs ] && [ ! -L /logs ] || rm -rf /logs
rm -rf /logs/verifier; mkdir -p /tests /logs/verifier && chmod 755 /tests && chmod 777 /logs/verifier
[ ! -L /tests ] && [ -z "$(ls -A /tests)" ] && [ -z "$(ls -A /logs/verifier)" ]"""
"""A script that recreates /tests and /logs/verifier, and removes pytest's configuration in the root."""

_PROCESSES = "cd /proc && echo [0-9]*"
"""A script that prints all process ids."""

_SOCKETS = "cat /proc/net/tcp /proc/net/tcp6 2> /dev/null; true"
"""A script that prints all TCP sockets."""

_END_OTHERS = """keep=" 1 $0 "; p=$$
while [ "${p:-0}" -gt 1 ]; do keep="$keep$p "; p=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$p/status"); done
for round in 1 2 3; do for one in /proc/[0-9]*; do p=${one#/proc/}
case "$keep" in *" $p "*) ;; *) kill -9 "$p" 2> /dev/null;; esac; done; done; true"""
"""A script that kills all visible processes except the first, those with ids in $0, and its ancestors."""

_ABSENT, _FILE, _PROGRAM = 44, 46, 47
_PACK = """most=$0; path=$1; shift; [ -e "$path" ] || exit 44
if [ -f "$path" ]; then head -c "$most" "$path" || exit 45; [ -x "$path" ] && exit 47; exit 46; fi
cd "$path" || exit 45
if [ $# = 0 ]; then set -- .; else
    for one in "$@"; do shift; if [ -e "$one" ] || [ -L "$one" ]; then set -- "$@" "$one"; fi; done; fi
[ $# = 0 ] || tar -cf - -- "$@" | head -c "$most" """
"""A script that prints the file $1, or the folder $1 or these names in it as a tar file, up to $0 bytes;
the exit code tells which."""

_UNPACK = 'mkdir -p "$0" && tar -xmf - -C "$0"'
"""A script that unpacks the tar file on its standard input over the folder $0."""


class EnvironmentFailed(SandboxError):
    """A failure of the environment itself, which says nothing about the code that ran in it."""


class RegistryUnreachable(EnvironmentFailed):
    """A registry of images that did not answer. It is an outage for the tasks that need it only."""

    harbor_name = REGISTRY_UNREACHABLE


class ImageError(HarborError):
    """A task's environment that cannot be made here: the task's property, and no outage.

    The message names the file and line, or the key, and the remedy if there is one.
    """

    harbor_name = BUILD_FAILED


class NeedsContainer(ImageError):
    """A task's environment that rooms do not support, and container engines may."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; {WITH_CONTAINER}")
        self.why = why


class HealthcheckError(HarborError):
    """An environment that did not become healthy."""


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


class Terms(TypedDict):
    """Terms on which a command runs; see `Environment.run_command`."""

    cwd: str
    env: Mapping[str, str]
    timeout_s: float | None
    user: str | int | None
    max_output: int


class Environment(ABC):
    """The environment of one trial, from `Environments.create` to `cleanup`, for one caller at a time.

    An implementation has five methods: `execute`, `read_file`, `write_file`, `heartbeat` and `cleanup`.
    All others use these with tar files and shell scripts, for which the environment needs `sh`, `tar`,
    `sed`, and commands as root. Rooms and containers have faster ones of their own.
    """

    workdir: str = "/"
    """Default working directory of commands."""
    env: Mapping[str, str] = MappingProxyType({})
    """Variables of every command."""
    user: str | int | None = None
    """Default user of commands; None is the image's."""
    tests: Tree = Tree()
    """Files of the image's /tests."""
    notes: tuple[str, ...] = ()
    """Differences from what the task's definition asks for."""
    _own_processes: str = ""
    """Ids of the processes that ran before the agent."""

    @abstractmethod
    async def execute(self, command: str, **terms: Unpack[Terms]) -> CommandResult:
        """Run a shell command to its end, as `run_command`, which has filled in the defaults."""

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
        return await self.execute(
            command,
            cwd=cwd or self.workdir,
            env={**self.env, **(env or {})},
            timeout_s=timeout_s,
            user=self.user if user is None else user,
            max_output=max_output,
        )

    @abstractmethod
    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """Read a regular file.

        Raises:
            OSError: there is none; the subclass gives the reason (`FileNotFoundError`, …).
            EnvironmentFailed: the environment is lost.
        """

    @abstractmethod
    async def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file, and make its parent folders.

        Raises:
            OSError: the path is not writable.
            EnvironmentFailed: the environment is lost.
        """

    @abstractmethod
    async def heartbeat(self) -> None:
        """Raise unless the environment is alive.

        Raises:
            EnvironmentFailed: it is lost.
        """

    @abstractmethod
    async def cleanup(self) -> None:
        """End every process and remove every file. Never fails; idempotent."""

    async def prepare(self) -> None:
        """Make the folders that every environment has, before its first command.

        Raises:
            EnvironmentFailed: the environment is lost, or its image has no shell.
        """
        await self._sh(FURNISH, self.workdir)
        self._own_processes = (await self._sh(_PROCESSES)).strip()

    async def become_healthy(self, check: Healthcheck) -> None:
        """Wait until the health check succeeds, by the rules of Docker's HEALTHCHECK.

        Raises:
            HealthcheckError: it failed `retries` times in a row after the start period.
            EnvironmentFailed: the environment is lost.
        """
        started = time.monotonic()
        failures = 0
        while True:
            starting = time.monotonic() - started < check.start_period_sec
            ended = await self.run_command(check.command, timeout_s=check.timeout_sec)
            if ended.exit_code == 0:
                return
            failures += not starting
            if failures >= check.retries:
                raise HealthcheckError(
                    f"the health check failed {failures} times in a row: {check.command}"
                )
            await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)

    async def read_tree(
        self, path: str, max_bytes: int = MAX_FILE_BYTES, only: Sequence[str] | None = None
    ) -> Tree:
        """Read a file, or a folder with its contents; links stay links.

        Args:
            only: names in the folder to read; the others are skipped.

        Raises:
            OSError: the path does not exist, or its contents are too large.
            EnvironmentFailed: the environment is lost.
        """
        most = 2 * max_bytes + (1 << 20)  # a tar file is longer than its files
        words = (str(most), self.absolute(path), *(only or ()))
        code, packed, err = await self._piped(_PACK, *words, max_output=most)
        if code == _ABSENT:
            raise FileNotFoundError(f"{path}: no such file")
        if code not in (0, _FILE, _PROGRAM):
            await self.heartbeat()
            raise OSError(f"{path}: {err.strip()}")
        if len(packed) >= (most if code == 0 else max_bytes + 1):
            raise OSError(f"{path}: more than {max_bytes} bytes")
        if code != 0:
            return of_bytes("", packed, 0o755 if code == _PROGRAM else 0o644)
        try:
            return from_tar(packed, max_bytes) if packed else Tree()
        except OSError as error:
            raise OSError(f"{path}: {error}") from error

    async def write_tree(self, path: str, tree: Tree) -> None:
        """Copy files over a folder.

        Raises:
            OSError: the folder is not writable.
            EnvironmentFailed: the environment is lost.
        """
        code, _, err = await self._piped(_UNPACK, self.absolute(path), stdin=to_tar(tree))
        if code != 0:
            await self.heartbeat()
            raise OSError(f"{path}: {err.strip()}")

    async def listening(self) -> frozenset[int]:
        """Return the TCP ports that servers listen on; none if the agent removed what lists them.

        Raises:
            EnvironmentFailed: the environment is lost.
        """
        rows = (line.split() for line in (await self._run(_SOCKETS)).stdout.splitlines())
        listens = (row[1] for row in rows if row[3:4] == [_LISTENS])
        return frozenset(int(local.rpartition(":")[2], 16) for local in listens)

    async def begin_verifier(self) -> None:
        """End every process, and replace /tests and /logs/verifier by empty folders.

        Processes that ran until now have not written to the new folders, and no longer can.

        Raises:
            OSError: the agent left files that prevent it.
            EnvironmentFailed: the environment is lost.
        """
        await self._sh(_END_OTHERS, self._own_processes)
        await self._sh(ANEW)

    async def end_verifier(self) -> None:
        """End every process, and remove the verifier's files, before an agent continues.

        Raises:
            EnvironmentFailed: the environment is lost.
        """
        await self.begin_verifier()

    def absolute(self, path: str) -> str:
        """Return the absolute path of one that may be relative to the working directory."""
        return path if path.startswith("/") else f"{self.workdir.rstrip('/')}/{path}"

    async def _piped(
        self, script: str, *arguments: str, stdin: bytes = b"", max_output: int = 0
    ) -> tuple[int, bytes, str]:
        """Run a script of ours as root; return its exit code, its output as bytes, and its errors.

        By default the bytes travel as files, which need no more than the abstract methods.

        Args:
            max_output: maximum bytes of output; longer output raises OSError, or is cut.
        """
        name = f"/tmp/piped-{secrets.token_hex(8)}"
        words, given = shlex.join((script, *arguments)), '"$0.in"' if stdin else "/dev/null"
        try:
            if stdin:
                await self.write_file(f"{name}.in", stdin, 0o600)
            ended = await self._run(f'mkdir -p /tmp; sh -c {words} < {given} > "$0.out"', name)
            out = await self.read_file(f"{name}.out", max_output) if max_output else b""
        finally:
            await self._run('rm -f "$0.in" "$0.out"', name)
        return ended.exit_code, out, ended.stderr or ended.stdout

    async def _run(self, script: str, *arguments: str) -> CommandResult:
        """Run a script of ours as root, without the task's variables."""
        words = shlex.join(("sh", "-c", script, *arguments))
        return await self.execute(
            words, cwd="/", env={}, timeout_s=_SCRIPT_S, user="0", max_output=MAX_OUTPUT
        )

    async def _sh(self, script: str, *arguments: str) -> str:
        """Run a script of ours, and return its output.

        Raises:
            EnvironmentFailed: the script failed, which it never does in a healthy environment.
        """
        ended = await self._run(script, *arguments)
        if ended.exit_code != 0:
            output = " ".join((ended.stderr or ended.stdout).split())[-_SHOWN_CHARS:]
            raise EnvironmentFailed(f"a script ended with exit code {ended.exit_code}: {output}")
        return ended.stdout


async def prepared(made: Environment) -> Environment:
    """Return an environment that is ready for its first command; clean it up if it cannot be.

    Raises:
        EnvironmentFailed: as `Environment.prepare`.
    """
    try:
        await made.prepare()
    except BaseException:
        await made.cleanup()
        raise
    return made


class Environments(ABC):
    """A factory of environments. An async context manager; exiting ends all of them."""

    identity: str
    """See `Sandbox.identity`: "harbor/" and a name."""

    async def __aenter__(self) -> Self:
        """Start the factory.

        Raises:
            EnvironmentFailed: this machine does not support it; the message names alternatives.
        """
        return self

    async def __aexit__(self, *_: object) -> None:
        """End remaining environments. By default does nothing, since trials clean up after themselves."""
        return

    @abstractmethod
    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> Environment:
        """Create an environment that is ready for its first command (`prepared`).

        Args:
            folder: contains a Dockerfile, or files for the working directory of `config.docker_image`.
            config: the task's [environment], or its verifier's.
            env: variables for every command, which override the image's: the resolved `config.env`.

        Raises:
            ImageError: the task needs something that these environments do not support, or a RUN failed.
            EnvironmentFailed: the environment could not be created.
        """
