"""Sandboxes of six methods, as the tinker cookbook has them, and their factories.

A `SandboxFactory` gets a task's environment/ folder and a lifetime in seconds. One of your own serves
trials (`FactoryEnvironments`), and `harbor_sandbox` is one that makes this project's environments.
"""

from __future__ import annotations

import asyncio
import math
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

from coding_model_project.grading.base import TaskEnvironment
from coding_model_project.harbor.environment.base import (
    MAX_FILE_BYTES,
    CommandResult,
    Environment,
    EnvironmentFailed,
    Environments,
    Killed,
    prepared,
)
from coding_model_project.harbor.environment.output import bounded, error_line
from coding_model_project.harbor.format.task_config import EnvironmentConfig

LIFETIME_S = 4 * 3600
"""The lifetime that factories get: seconds until a sandbox may end, whoever still uses it."""

_CALL_S = 120
_SPARE_S = 30
"""Seconds after a command's timeout in which the sandbox must have said so."""
_KILLED = 137
_UNTOLD = ("docker_image", "cpus", "memory_mb", "storage_mb", "gpus", "network_mode")
"""Settings of a task that a factory, which gets only the folder, does not learn."""


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The result of a sandbox's operation; `exit_code` is negative if the sandbox itself failed."""

    stdout: str
    stderr: str
    exit_code: int
    metrics: dict[str, Any] = field(default_factory=dict[str, Any])


SandboxFactory = Callable[[Path, int], Awaitable[Any]]
"""Makes a sandbox, with the methods of `HarborSandbox`, from a task's environment/ folder and seconds."""


class FactoryEnvironments(Environments):
    """Environments made by a `SandboxFactory`. See `base.Environments`.

    An exception of a sandbox, and a negative exit code before the timeout, are failures of the
    environment, and never the program's.
    """

    def __init__(self, factory: SandboxFactory, lifetime_s: int = LIFETIME_S) -> None:
        self._factory, self._lifetime_s = factory, lifetime_s
        name = getattr(factory, "__qualname__", type(factory).__qualname__)
        self.identity = f"harbor/{getattr(factory, '__module__', '')}:{name}"

    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> Environment:
        """See `Environments.create`."""
        try:
            sandbox = await self._factory(folder, self._lifetime_s)
        except Exception as error:
            raise EnvironmentFailed(f"{self.identity}: {error_line(error)}") from error
        made = _FactoryEnvironment(sandbox, self.identity, env)
        made.notes = tuple(
            f"environment.{name} is not passed to the sandbox factory"
            for name in _UNTOLD
            if getattr(config, name) != getattr(EnvironmentConfig(), name)
        )
        try:
            made.workdir = config.workdir or await made.default_workdir()
        except BaseException:
            await made.cleanup()
            raise
        return await prepared(made)


class _FactoryEnvironment(Environment):
    """A sandbox as an environment. See `base.Environment`."""

    def __init__(self, sandbox: Any, identity: str, env: Mapping[str, str]) -> None:
        self._sandbox, self._identity, self.env = sandbox, identity, env

    async def default_workdir(self) -> str:
        ended = await self._call(self._sandbox.run_command("pwd", timeout=_CALL_S))
        return ended.stdout.strip() or "/"

    async def execute(
        self,
        command: str,
        *,
        cwd: str,
        env: Mapping[str, str],
        timeout_s: float | None,
        user: str | int | None,
        max_output: int,
    ) -> CommandResult:
        """See `Environment.run_command`. Timeouts are whole seconds."""
        whole_s = LIFETIME_S if timeout_s is None else math.ceil(timeout_s)
        variables = "".join(f" {quote(f'{name}={value}')}" for name, value in env.items())
        line = f"{_as_user(user)}env{variables} sh -c {quote(command)}"
        started = time.monotonic()
        waiting = asyncio.timeout(whole_s + _SPARE_S)
        try:
            async with waiting:
                ended = await self._sandbox.run_command(
                    line, workdir=cwd, timeout=whole_s, max_output_bytes=max_output
                )
        except Exception as error:
            in_time = time.monotonic() - started < whole_s - 1
            if isinstance(error, TimeoutError) and not in_time and not waiting.expired():
                return CommandResult(exit_code=_KILLED, killed=Killed.timeout)
            why = f"no answer within {whole_s} s" if waiting.expired() else error_line(error)
            raise EnvironmentFailed(f"{self._identity}: {why}") from error
        is_late = ended.exit_code < 0
        if is_late and time.monotonic() - started < whole_s - 1:
            raise EnvironmentFailed(f"{self._identity}: {ended.stderr.strip()[:400]}")
        return CommandResult(
            stdout=bounded(ended.stdout, max_output),
            stderr=bounded(ended.stderr, max_output),
            exit_code=_KILLED if is_late else ended.exit_code,
            killed=Killed.timeout if is_late else None,
        )

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """See `Environment.read_file`. The sandbox's own method would lose bytes that are not text."""
        where = quote(self.absolute(path))
        size = await self._root(f"[ -f {where} ] && wc -c < {where}", max_output=100)
        if size.exit_code != 0:
            raise FileNotFoundError(f"{path} is not a regular file")
        if int(size.stdout) > max_bytes:
            raise OSError(f"{path}: more than {max_bytes} bytes")
        read = await self._root(f"base64 < {where}", max_output=2 * max_bytes + 1000)
        try:
            content = b64decode(read.stdout)
        except NotBase64:
            content = b""
        if len(content) != int(size.stdout):
            raise EnvironmentFailed(f"{self._identity}: {path} was not read whole")
        return content

    async def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """See `Environment.write_file`."""
        path = self.absolute(path)
        is_program = bool(mode & 0o111)
        ended = await self._call(
            self._sandbox.write_file(path, content, executable=is_program, timeout=_CALL_S)
        )
        if ended.exit_code < 0:
            raise EnvironmentFailed(f"{self._identity}: {ended.stderr.strip()[:400]}")
        if ended.exit_code == 0:
            ended = await self._root(f"chmod {mode:o} {quote(path)}", max_output=1000)
        if ended.exit_code != 0:
            raise OSError(f"{path}: {ended.stderr.strip()}")

    async def heartbeat(self) -> None:
        """See `Environment.heartbeat`."""
        await self._call(self._sandbox.send_heartbeat())

    async def cleanup(self) -> None:
        """See `Environment.cleanup`."""
        with suppress(Exception):
            await self._sandbox.cleanup()

    async def _root(self, command: str, *, max_output: int) -> CommandResult:
        return await self.execute(
            command, cwd="/", env={}, timeout_s=_CALL_S, user=None, max_output=max_output
        )

    async def _call(self, result: Awaitable[Any]) -> Any:
        """Await a result of the sandbox.

        Raises:
            EnvironmentFailed: the call failed.
        """
        try:
            return await result
        except Exception as error:
            raise EnvironmentFailed(f"{self._identity}: {error_line(error)}") from error


async def harbor_sandbox(env_dir: Path, timeout: int) -> HarborSandbox:
    """Make a sandbox from a task's environment/ folder: a room, or a container if the image needs one.

    A `SandboxFactory`, so that other programs' recipes run Harbor tasks on this machine. The task.toml
    beside the folder applies.

    Args:
        timeout: seconds until the sandbox ends by itself.

    Raises:
        UngradableError: the environment cannot be made here.
    """
    from coding_model_project.harbor.environment.factory import environments_of
    from coding_model_project.harbor.format.task import load_task, resolve_env

    folder = Path(env_dir)
    task = load_task(folder.parent)
    stack = AsyncExitStack()
    try:
        environments = await stack.enter_async_context(environments_of(TaskEnvironment()))
        config = task.config.environment
        env = resolve_env(config.env, task.environ)
        environment = await environments.create(folder, config, env)
        stack.push_async_callback(environment.cleanup)
    except BaseException:
        await stack.aclose()
        raise
    return HarborSandbox(environment, stack, timeout)


class HarborSandbox:
    """A sandbox of one trial, in a room or a container.

    Args:
        user: the user of commands; default: the image's.
        stack: closed by `cleanup`, and after `lifetime_s` seconds.
    """

    def __init__(
        self,
        environment: Environment,
        stack: AsyncExitStack | None = None,
        lifetime_s: float | None = None,
        user: str | int | None = None,
    ) -> None:
        self._environment, self._stack, self._user = environment, stack or AsyncExitStack(), user
        self._id = uuid4().hex
        self._ending: asyncio.Task[None] | None = None
        if lifetime_s is not None:
            self._ending = asyncio.create_task(self._end_after(lifetime_s))

    @property
    def sandbox_id(self) -> str:
        """The sandbox's identifier."""
        return self._id

    async def send_heartbeat(self, timeout: int = 30) -> None:
        """Return if the sandbox is alive.

        Raises:
            SandboxError: it is gone.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._environment.heartbeat()
        except TimeoutError as error:
            raise EnvironmentFailed(f"no sign of life within {timeout} s") from error

    async def run_command(
        self,
        command: str,
        workdir: str | None = None,
        timeout: int = 60,
        max_output_bytes: int | None = None,
    ) -> SandboxResult:
        """Run a shell command to its end, or kill it after `timeout` seconds (exit code -1).

        Args:
            workdir: default: the image's WORKDIR.
            max_output_bytes: maximum bytes kept from each stream; default: 128 KiB.

        Raises:
            SandboxError: the sandbox is gone.
        """
        ended = await self._environment.run_command(
            command,
            cwd=workdir,
            timeout_s=timeout,
            user=self._user,
            max_output=max_output_bytes or 128 << 10,
        )
        return SandboxResult(ended.stdout, ended.stderr, -1 if ended.timed_out else ended.exit_code)

    async def read_file(
        self, path: str, max_bytes: int | None = None, timeout: int = 60
    ) -> SandboxResult:
        """Read a file; `stdout` is its text, up to `max_bytes`. Raises as `run_command`."""
        most = max_bytes or MAX_FILE_BYTES
        return await self.run_command(f"head -c {most} {quote(path)}", None, timeout, 2 * most)

    async def write_file(
        self, path: str, content: str | bytes, executable: bool = False, timeout: int = 60
    ) -> SandboxResult:
        """Write a file, and make its parent folders. Raises as `run_command`."""
        body = content.encode() if isinstance(content, str) else content
        try:
            async with asyncio.timeout(timeout):
                await self._environment.write_file(path, body, 0o755 if executable else 0o644)
        except TimeoutError:
            return SandboxResult("", f"{path}: not written within {timeout} s", -1)
        except OSError as error:
            return SandboxResult("", str(error), 1)
        return SandboxResult("", "", 0)

    async def cleanup(self) -> None:
        """End the sandbox."""
        if self._ending is not None:
            self._ending.cancel()
        await self._stack.aclose()

    async def _end_after(self, lifetime_s: float) -> None:
        await asyncio.sleep(lifetime_s)
        await self._stack.aclose()


def _as_user(user: str | int | None) -> str:
    """Return the words before a command that change to a user, "name:group" or number; none for root."""
    name, _, group = str(user or 0).partition(":")
    if name in ("0", "root"):
        return ""
    gid = quote(group) if group else f"$(id -g {quote(name)} 2> /dev/null || echo 0)"
    return f"setpriv --reuid={quote(name)} --regid={gid} --clear-groups "
