"""Sandboxes of six methods, as the tinker cookbook has them, and their factories.

A `SandboxFactory` gets a task's environment/ folder and a lifetime in seconds. One of your own serves
trials (`foreign.FactoryEnvironments`). `harbor_sandbox` is one that makes this project's environments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

from coding_model_project.grading.base import TaskEnvironment
from coding_model_project.harbor.environment.base import (
    MAX_FILE_BYTES,
    Environment,
    EnvironmentFailed,
)


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The result of a sandbox's operation; `exit_code` is negative if the sandbox itself failed."""

    stdout: str
    stderr: str
    exit_code: int
    metrics: dict[str, Any] = field(default_factory=dict[str, Any])


SandboxFactory = Callable[[Path, int], Awaitable[Any]]
"""Makes a sandbox, with the methods of `HarborSandbox`, from a task's environment/ folder and seconds."""


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
