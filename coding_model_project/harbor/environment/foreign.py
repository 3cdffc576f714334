"""Environments that other programs make: sandbox factories of the tinker cookbook, and Harbor's own.

`harbor:NAME` accepts any name that `harbor run -e` accepts, including `module:Class`. It needs that
environment's packages and API keys, and Python 3.12.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import tempfile
import time
from abc import abstractmethod
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from shlex import quote
from typing import Any, Unpack
from uuid import uuid4

from coding_model_project.errors import ConfigError
from coding_model_project.harbor.environment.base import (
    MAX_FILE_BYTES,
    MAX_OUTPUT,
    CommandResult,
    Environment,
    EnvironmentFailed,
    Environments,
    ImageError,
    Killed,
    Terms,
    prepared,
)
from coding_model_project.harbor.environment.tree import bounded
from coding_model_project.harbor.format.task_config import EnvironmentConfig, NetworkMode

SandboxFactory = Callable[[Path, int], Awaitable[Any]]
"""Makes a sandbox (`interface.HarborSandbox`) from a task's environment/ folder and seconds."""

LIFETIME_S = 4 * 3600
"""The lifetime that factories get: seconds until a sandbox may end, whoever still uses it."""

_CALL_S = 120
_SPARE_S = 30
"""Seconds after a command's timeout in which its environment must have said so."""
_KILLED = 137
_TIMEOUT_WORDS = ("timed out", "timeout")
_UNTOLD = ("docker_image", "cpus", "memory_mb", "storage_mb", "gpus", "network_mode")
"""Settings of a task that a factory, which gets only the folder, does not learn."""
_TOLD = ("docker_image", "cpus", "memory_mb", "storage_mb", "gpus", "workdir", "build_timeout_sec")
"""Settings of a task that Harbor's environments get."""


class _Foreign(Environment):
    """An environment that another program made. See `base.Environment`.

    Its exceptions, and negative exit codes before a command's timeout, are failures of the environment,
    and never the command's.
    """

    _longest_s: int | None = None
    """Timeout of commands that have none, in seconds."""

    def __init__(
        self, made: Any, identity: str, env: Mapping[str, str], workdir: str | None
    ) -> None:
        self._made, self._identity, self.env = made, identity, env
        self.workdir = workdir or ""

    @abstractmethod
    async def _exec(
        self, command: str, **terms: Unpack[Terms]
    ) -> tuple[str | None, str | None, int]:
        """Run a command; return its output, its errors and its exit code."""

    async def prepare(self) -> None:
        """See `Environment.prepare`. Without a working directory of the task's, the image's counts."""
        if not self.workdir:
            terms = Terms(cwd="", env={}, timeout_s=_CALL_S, user=None, max_output=MAX_OUTPUT)
            self.workdir = (await self.execute("pwd", **terms)).stdout.strip() or "/"
        await super().prepare()

    async def execute(self, command: str, **terms: Unpack[Terms]) -> CommandResult:
        """See `Environment.run_command`. Timeouts are whole seconds."""
        timeout_s, max_output = terms["timeout_s"], terms["max_output"]
        whole_s = self._longest_s if timeout_s is None else max(1, math.ceil(timeout_s))
        terms["timeout_s"] = whole_s
        waiting = asyncio.timeout(None if whole_s is None else whole_s + _SPARE_S)
        started = time.monotonic()
        failure: Exception | None = None
        out, err, code = "", "", -1
        try:
            async with waiting:
                out, err, code = await self._exec(command, **terms)
        except Exception as error:  # noqa: BLE001 - another program's; it is raised below
            failure = error
        is_late = whole_s is not None and time.monotonic() - started >= whole_s - 1
        killed = None
        if code < 0:
            # An environment may tell of a timeout by any exception, or by none.
            told = (
                failure is None
                or isinstance(failure, TimeoutError)
                or any(word in str(failure).lower() for word in _TIMEOUT_WORDS)
            )
            if waiting.expired() or not (is_late and told):
                why = _error_line(failure) if failure else (err or "").strip()[:400]
                why = f"no answer within {whole_s} s" if waiting.expired() else why
                raise EnvironmentFailed(f"{self._identity}: {why}") from failure
            code, killed = _KILLED, Killed.timeout
        return CommandResult(
            stdout=bounded(out, max_output),
            stderr=bounded(err, max_output),
            exit_code=code,
            killed=killed,
        )

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """See `Environment.read_file`."""
        where = self.absolute(path)
        size = await self._run('[ -f "$0" ] && wc -c < "$0"', where)
        if size.exit_code != 0:
            raise FileNotFoundError(f"{path} is not a regular file")
        if int(size.stdout) > max_bytes:
            raise OSError(f"{path}: more than {max_bytes} bytes")
        content = await self._download(where, max_bytes)
        if len(content) != int(size.stdout):
            raise EnvironmentFailed(f"{self._identity}: {path} was not read whole")
        return content

    async def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """See `Environment.write_file`."""
        where = self.absolute(path)
        ended = await self._run('mkdir -p "${0%/*}/"', where)
        if ended.exit_code == 0:
            await self._upload(where, content, mode)
            ended = await self._run(f'chmod {mode:o} "$0"', where)
        if ended.exit_code != 0:
            raise OSError(f"{path}: {(ended.stderr or ended.stdout).strip()}")

    @abstractmethod
    async def _download(self, path: str, max_bytes: int) -> bytes:
        """Read a file that exists."""

    @abstractmethod
    async def _upload(self, path: str, content: bytes, mode: int) -> None:
        """Write a file into a folder that exists.

        Raises:
            OSError: the path is not writable.
            EnvironmentFailed: the environment is lost.
        """

    async def _call(self, result: Any) -> Any:
        """Await a result of the other program, if it is awaitable.

        Raises:
            EnvironmentFailed: the call failed.
        """
        try:
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            raise EnvironmentFailed(f"{self._identity}: {_error_line(error)}") from error


def _error_line(error: Exception) -> str:
    """Return another program's exception on one line of at most 400 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


# ── sandbox factories ─────────────────────────────────────────────────────────────────────────────────


class FactoryEnvironments(Environments):
    """Environments made by a `SandboxFactory`. See `base.Environments`."""

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
            raise EnvironmentFailed(f"{self.identity}: {_error_line(error)}") from error
        made = _FactoryEnvironment(sandbox, self.identity, env, config.workdir)
        made.notes = tuple(
            f"environment.{name} is not passed to the sandbox factory"
            for name in _UNTOLD
            if getattr(config, name) != getattr(EnvironmentConfig(), name)
        )
        return await prepared(made)


class _FactoryEnvironment(_Foreign):
    """A sandbox as an environment."""

    _longest_s = LIFETIME_S

    async def _exec(
        self, command: str, **terms: Unpack[Terms]
    ) -> tuple[str | None, str | None, int]:
        variables = "".join(f" {quote(f'{name}={one}')}" for name, one in terms["env"].items())
        ended = await self._made.run_command(
            f"{_as_user(terms['user'])}env{variables} sh -c {quote(command)}",
            workdir=terms["cwd"] or None,
            timeout=terms["timeout_s"],
            max_output_bytes=terms["max_output"],
        )
        return ended.stdout, ended.stderr, ended.exit_code

    async def _download(self, path: str, max_bytes: int) -> bytes:
        """See `_Foreign._download`. The sandbox's own method would lose bytes that are not text."""
        most = 2 * max_bytes + 1000
        read = await self.execute(
            f"base64 < {quote(path)}", cwd="/", env={}, timeout_s=_CALL_S, user="0", max_output=most
        )
        with suppress(NotBase64):
            return b64decode(read.stdout)
        return b""

    async def _upload(self, path: str, content: bytes, mode: int) -> None:
        is_program = bool(mode & 0o111)
        ended = await self._call(
            self._made.write_file(path, content, executable=is_program, timeout=_CALL_S)
        )
        if ended.exit_code < 0:
            raise EnvironmentFailed(f"{self._identity}: {ended.stderr.strip()[:400]}")
        if ended.exit_code > 0:
            raise OSError(f"{path}: {ended.stderr.strip()}")

    async def heartbeat(self) -> None:
        """See `Environment.heartbeat`."""
        await self._call(self._made.send_heartbeat())

    async def cleanup(self) -> None:
        """See `Environment.cleanup`."""
        with suppress(Exception):
            await self._made.cleanup()


def _as_user(user: str | int | None) -> str:
    """Return the words before a command that change to a user, "name:group" or number; none for root."""
    name, _, group = str(user or 0).partition(":")
    if name in ("0", "root"):
        return ""
    gid = quote(group) if group else f"$(id -g {quote(name)} 2> /dev/null || echo 0)"
    return f"setpriv --reuid={quote(name)} --regid={gid} --clear-groups "


# ── Harbor's environments ─────────────────────────────────────────────────────────────────────────────


class HarborEnvironments(Environments):
    """Environments made by Harbor's factory. See `base.Environments`.

    Args:
        kind: Harbor's name, such as `daytona`, `modal` or `docker`, or `module:Class`.

    Raises:
        ConfigError: Harbor is not installed, or has no environment of that name.
    """

    def __init__(self, kind: str) -> None:
        try:
            factory = _harbors("environments.factory:EnvironmentFactory")
            if ":" in kind:
                self._make = factory.get_environment_class(import_path=kind)
            else:
                types = _harbors("models.environment_type:EnvironmentType")
                self._make = factory.get_environment_class(types(kind))
        except (ImportError, ValueError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"coding.harbor.environment=harbor:{kind}: {_error_line(error)}; expected a name of "
                "Harbor's or module:Class, and Harbor's package: pip install harbor (Python 3.12)"
            ) from error
        self.identity = f"harbor/harbor:{kind}"

    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> Environment:
        """See `Environments.create`."""
        given = {name: value for name, value in asdict(config).items() if name in _TOLD}
        stated = {name: value for name, value in given.items() if value is not None}
        is_open = config.network_mode is NetworkMode.public
        # Harbor's environment refuses a network that it cannot enforce.
        policy = _harbors("models.task.config:NetworkPolicy")(
            network_mode=config.network_mode.value, allowed_hosts=list(config.allowed_hosts or ())
        )
        logs = tempfile.TemporaryDirectory(prefix="harbor-trial-")
        name = f"{folder.parent.name}__{uuid4().hex[:7]}"
        try:
            made = self._make(
                environment_dir=folder,
                environment_name=folder.parent.name,
                session_id=f"{name}__env",
                trial_paths=_harbors("models.trial.paths:TrialPaths")(trial_dir=Path(logs.name)),
                task_env_config=_harbors("models.task.config:EnvironmentConfig")(
                    **stated, env=dict(env)
                ),
                network_policy=None if is_open else policy,
            )
            await made.start(force_build=False)
        except Exception as error:
            logs.cleanup()
            if isinstance(error, ValueError) and not is_open:  # Harbor's refusal
                raise ImageError(f"{self.identity}: {_error_line(error)}") from error
            raise EnvironmentFailed(f"{self.identity}: {_error_line(error)}") from error
        place = _HarborEnvironment(made, self.identity, env, config.workdir)
        place.logs = logs
        return await prepared(place)


def _harbors(name: str) -> Any:
    """Return an object of Harbor's package, which needs Python 3.12.

    Raises:
        ImportError: it is not installed.
    """
    return resolve_name(f"harbor.{name}")


class _HarborEnvironment(_Foreign):
    """A Harbor environment as one of ours."""

    logs: tempfile.TemporaryDirectory[str]
    """A folder that Harbor needs."""

    async def _exec(
        self, command: str, **terms: Unpack[Terms]
    ) -> tuple[str | None, str | None, int]:
        user = terms["user"]
        ended = await self._made.exec(
            command,
            cwd=terms["cwd"] or None,
            env=dict(terms["env"]),
            timeout_sec=terms["timeout_s"],
            user=int(user) if isinstance(user, str) and user.isdecimal() else user,
        )
        return ended.stdout, ended.stderr, ended.return_code

    async def _download(self, path: str, max_bytes: int) -> bytes:
        with tempfile.NamedTemporaryFile(prefix="harbor-file-") as file:
            await self._call(self._made.download_file(path, Path(file.name)))
            return Path(file.name).read_bytes()

    async def _upload(self, path: str, content: bytes, mode: int) -> None:
        with tempfile.NamedTemporaryFile(prefix="harbor-file-") as file:
            Path(file.name).write_bytes(content)
            Path(file.name).chmod(mode)
            await self._call(self._made.upload_file(Path(file.name), path))

    async def heartbeat(self) -> None:
        """See `Environment.heartbeat`."""
        if (await self._run("true")).exit_code != 0:
            raise EnvironmentFailed(f"{self._identity}: the environment does not respond")

    async def cleanup(self) -> None:
        """See `Environment.cleanup`."""
        with suppress(Exception):
            await self._made.stop(delete=True)
        self.logs.cleanup()
