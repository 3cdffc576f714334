"""Harbor's own environments for our trials: `coding.harbor.environment=harbor:daytona`.

Accepts any name that `harbor run -e` accepts, including `module:Class`. Needs that environment's packages
and API keys, and Python 3.12.
"""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

from coding_model_project.errors import ConfigError
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

_KILLED = 137
_TIMEOUT_WORDS = ("timed out", "timeout")
_KEYS = ("docker_image", "cpus", "memory_mb", "storage_mb", "gpus", "workdir", "build_timeout_sec")


class HarborEnvironments(Environments):
    """Environments made by Harbor's factory. See `base.Environments`.

    Args:
        kind: Harbor's name, such as `daytona`, `modal` or `docker`, or `module:Class`.

    Raises:
        ConfigError: Harbor is not installed, or has no environment of that name.
    """

    def __init__(self, kind: str) -> None:
        try:
            from harbor.environments.factory import EnvironmentFactory
            from harbor.models.environment_type import EnvironmentType
        except ImportError as error:
            raise ConfigError(
                f"coding.harbor.environment=harbor:{kind}: Harbor's package is not installed: "
                "pip install harbor (Python 3.12 or later)"
            ) from error
        try:
            if ":" in kind:
                self._make: Any = EnvironmentFactory.get_environment_class(import_path=kind)
            else:
                self._make = EnvironmentFactory.get_environment_class(EnvironmentType(kind))
        except (ValueError, ImportError, AttributeError, TypeError) as error:
            known = ", ".join(sorted(one.value for one in EnvironmentType))
            raise ConfigError(
                f"coding.harbor.environment=harbor:{kind}: {error_line(error)}; use module:Class or "
                f"one of Harbor's: {known}"
            ) from error
        self.identity = f"harbor/harbor:{kind}"

    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> Environment:
        """See `Environments.create`."""
        from harbor.models.task.config import EnvironmentConfig as HarborsConfig
        from harbor.models.trial.paths import TrialPaths

        given = {name: value for name, value in asdict(config).items() if name in _KEYS}
        stated = {name: value for name, value in given.items() if value is not None}
        logs = tempfile.TemporaryDirectory(prefix="harbor-trial-")
        name = f"{folder.parent.name}__{uuid4().hex[:7]}"
        try:
            made = self._make(
                environment_dir=folder,
                environment_name=folder.parent.name,
                session_id=f"{name}__env",
                trial_paths=TrialPaths(trial_dir=Path(logs.name)),
                task_env_config=HarborsConfig(**stated, env=dict(env)),
            )
            await made.start(force_build=False)
        except Exception as error:
            logs.cleanup()
            raise EnvironmentFailed(f"{self.identity}: {error_line(error)}") from error
        place = _HarborEnvironment(made, logs, self.identity, env)
        place.workdir = config.workdir or await _workdir(made)
        return await prepared(place)


class _HarborEnvironment(Environment):
    """A Harbor environment. See `base.Environment`."""

    def __init__(
        self,
        made: Any,
        logs: tempfile.TemporaryDirectory[str],
        identity: str,
        env: Mapping[str, str],
    ) -> None:
        self._made, self._logs, self._identity, self.env = made, logs, identity, env

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
        """See `Environment.run_command`.

        Harbor's timeouts are whole seconds, and only its message tells a timeout from other errors.
        """
        whole_s = None if timeout_s is None else max(1, round(timeout_s))
        who = int(user) if isinstance(user, str) and user.isdecimal() else user
        try:
            async with asyncio.timeout(None if timeout_s is None else timeout_s + 30):
                ended = await self._made.exec(
                    command, cwd=cwd, env=dict(env), timeout_sec=whole_s, user=who
                )
        except TimeoutError:
            return CommandResult(exit_code=_KILLED, killed=Killed.timeout)
        except Exception as error:
            if timeout_s is not None and any(word in str(error).lower() for word in _TIMEOUT_WORDS):
                return CommandResult(exit_code=_KILLED, killed=Killed.timeout)
            raise EnvironmentFailed(f"{self._identity}: {error_line(error)}") from error
        return CommandResult(
            stdout=bounded(ended.stdout, max_output),
            stderr=bounded(ended.stderr, max_output),
            exit_code=ended.return_code,
        )

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """See `Environment.read_file`."""
        path = self.absolute(path)
        size = await self._root(f"[ -f {quote(path)} ] && wc -c < {quote(path)}")
        if size.exit_code != 0:
            raise FileNotFoundError(f"{path} is not a regular file")
        if int(size.stdout) > max_bytes:
            raise OSError(f"{path}: more than {max_bytes} bytes")
        with tempfile.TemporaryDirectory(prefix="harbor-file-") as folder:
            target = Path(folder) / "file"
            await self._call(self._made.download_file(path, target))
            return target.read_bytes()

    async def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """See `Environment.write_file`."""
        path = self.absolute(path)
        above = path.rpartition("/")[0] or "/"
        if (made := await self._root(f"mkdir -p {quote(above)}")).exit_code != 0:
            raise OSError(f"{path}: {made.stderr.strip()}")
        with tempfile.TemporaryDirectory(prefix="harbor-file-") as folder:
            source = Path(folder) / "file"
            source.write_bytes(content)
            source.chmod(mode)
            await self._call(self._made.upload_file(source, path))
        await self._root(f"chmod {mode:o} {quote(path)}")

    async def heartbeat(self) -> None:
        """See `Environment.heartbeat`."""
        if (await self._root("true")).exit_code != 0:
            raise EnvironmentFailed(f"{self._identity}: the environment does not respond")

    async def cleanup(self) -> None:
        """See `Environment.cleanup`."""
        with suppress(Exception):
            await self._made.stop(delete=True)
        self._logs.cleanup()

    async def _root(self, command: str) -> CommandResult:
        return await self.execute(
            command, cwd="/", env={}, timeout_s=60.0, user=0, max_output=1 << 16
        )

    async def _call(self, result: Any) -> Any:
        """Await a result of the environment, if it is awaitable.

        Raises:
            EnvironmentFailed: the call failed.
        """
        try:
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            raise EnvironmentFailed(f"{self._identity}: {error_line(error)}") from error


async def _workdir(made: Any) -> str:
    """Return the default working directory of commands."""
    ended = await made.exec("pwd")
    return (ended.stdout or "/").strip()
