"""A container engine's command line, docker's or podman's, and an environment in one of its containers.

Unlike in a room, an agent that is root may change the image's own programs, which the verifier then runs.
Restarting the container ends the agent's processes, and /tests and /logs/verifier are then recreated.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import secrets
import shlex
import shutil
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Unpack

from coding_model_project.harbor.environment.base import (
    ANEW,
    FURNISH,
    MAX_FILE_BYTES,
    MAX_OUTPUT,
    CommandResult,
    Environment,
    EnvironmentFailed,
    Killed,
    Terms,
)
from coding_model_project.harbor.environment.calls import Call, calling
from coding_model_project.harbor.environment.tree import Tree, of_bytes, shown

_GRACE_S = 2.0
"""Seconds that a client has to end with all that it started."""

_ANSWER_S = 120.0
"""Timeout of the engine's own operations in wall seconds."""

_PODMANS_LIMITS = (
    ("nofile", resource.RLIMIT_NOFILE, 1 << 20),
    ("nproc", resource.RLIMIT_NPROC, 1 << 15),  # podman's own default
)
"""Limits that podman sets in a container, with their maximum values."""

_SHOWN_CHARS = 600
_MANY_BYTES = 1 << 20

_REGISTRIES = "CONTAINERS_REGISTRIES_CONF"
"""Variable with podman's file of registries. As installed, podman knows only some images without one."""

_UNREACHABLE = re.compile(
    r"dial tcp|no such host|server misbehaving|i/o timeout|TLS handshake|deadline exceeded|"
    r"Client\.Timeout|connection (?:refused|reset)|unexpected EOF|EOF$|toomanyrequests|"
    r"too many requests|unexpected HTTP status: 5\d\d|service unavailable|bad gateway",
    re.IGNORECASE,
)
"""Reasons why podman and docker got no answer from a registry, in the words of Go's network library."""

_OF_A_COMMAND = re.compile(r"while running runtime|did not complete successfully|exit status \d")
"""Errors of a Dockerfile's RUN, which may name anything."""


class Engine:
    """A client of a container engine.

    Args:
        program: docker, podman, or a program with the same arguments.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self._path = program
        self._folder = TemporaryDirectory(prefix="engine-")
        """Its working directory, in which podman's monitor leaves a file if memory runs out."""
        self._env = dict(os.environ)

    @property
    def limits(self) -> list[str]:
        """Arguments of `run` and `build` that keep containers within this process's own limits.

        By default podman, whose containers are children of its caller, raises both limits. That needs a
        capability that root in a container or virtual machine often lacks.
        """
        if self.program != "podman":
            return []
        words: list[str] = []
        for name, kind, maximum in _PODMANS_LIMITS:
            hard = resource.getrlimit(kind)[1]
            n = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
            words += ["--ulimit", f"{name}={n}:{n}"]
        return words

    async def find(self) -> None:
        """Find the program, and check that its engine responds.

        Raises:
            EnvironmentFailed: there is no such program, or its engine does not respond.
        """
        way_out = "; choose another engine, or rooms, which need none"
        found = shutil.which(self.program)
        if found is None:
            raise EnvironmentFailed(f"{self.program} is not installed here{way_out}")
        self._path = found
        try:
            await self.ask("ps", "--quiet")
        except EnvironmentFailed as error:
            raise EnvironmentFailed(f"no container engine responds: {error}{way_out}") from error
        if self.program == "podman":
            await self._search_docker_hub()

    async def _search_docker_hub(self) -> None:
        """Have podman read `FROM owner/image` as docker does, unless this machine has registries."""
        if _REGISTRIES in os.environ:
            return
        _, out, _ = await self.run("info", "--format", "{{json .Registries}}")
        if out.strip() == b"{}":
            path = Path(self._folder.name, "registries.conf")
            path.write_text('unqualified-search-registries = ["docker.io"]\n')
            self._env[_REGISTRIES] = str(path)

    async def ask(
        self, *arguments: str, stdin: bytes | None = None, timeout_s: float = _ANSWER_S
    ) -> str:
        """Run a command of the engine, and return its output.

        Raises:
            EnvironmentFailed: it failed or timed out; the message has its output.
        """
        code, out, err = await self.run(
            *arguments, stdin=stdin, timeout_s=timeout_s, max_output=_MANY_BYTES
        )
        if code != 0:
            raise self._failed(arguments[0], code, err or out)
        return out.decode("utf-8", "replace").strip()

    async def detach(self, *arguments: str, timeout_s: float = _ANSWER_S) -> None:
        """Start something that keeps running; output goes to a file, since a monitor keeps pipes open.

        Raises:
            EnvironmentFailed: it failed or timed out; the message has its output.
        """
        with NamedTemporaryFile(prefix="engine-") as output:
            to_file = ("/bin/sh", "-c", 'exec "$@" > "$0" 2>&1', output.name)
            code, _, _ = await self.run(*arguments, timeout_s=timeout_s, through=to_file)
            if code != 0:
                raise self._failed(arguments[0], code, output.read(_MANY_BYTES))

    async def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        timeout_s: float = _ANSWER_S,
        max_output: int = _MANY_BYTES,
        tether: bool = False,
        through: tuple[str, ...] = (),
    ) -> tuple[int, bytes, bytes]:
        """Run a command of the engine; return its exit code, standard output and standard error.

        Args:
            tether, through: as for `calling`.

        Raises:
            EnvironmentFailed: it timed out.
        """
        async with self.calling(
            *arguments, stdin=stdin, max_output=max_output, tether=tether, through=through
        ) as call:
            try:
                code = await asyncio.wait_for(asyncio.shield(call.ended), timeout_s)
            except TimeoutError as error:
                raise self._late(arguments[0], timeout_s) from error
            return code, call.stdout.take()[0], call.stderr.take()[0]

    def calling(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        max_output: int = _MANY_BYTES,
        tether: bool = False,
        through: tuple[str, ...] = (),
    ) -> AbstractAsyncContextManager[Call]:
        """Start a call of the engine, as `calls.calling`.

        Args:
            tether: podman builds in processes of its own, where docker's service does: end them too.
            through: words of a program that becomes the engine's.
        """
        return calling(
            [*through, self._path, *arguments],
            stdin=stdin,
            max_output=max_output,
            cwd=self._folder.name,
            env=self._env,
            grace_s=_GRACE_S if tether else None,
        )

    def _late(self, command: str, timeout_s: float) -> EnvironmentFailed:
        return EnvironmentFailed(f"{self.program} {command} did not end within {timeout_s:.0f} s")

    def _failed(self, command: str, code: int, output: bytes) -> EnvironmentFailed:
        why = one_line(output) or f"exit code {code}"
        return EnvironmentFailed(f"{self.program} {command}: {why}")


def is_unreachable(output: bytes) -> bool:
    """Return whether a failed `build` or `pull` got no answer from a registry.

    That is an outage. A registry that answers that it has no such image, or a command of the Dockerfile
    that fails, is not.
    """
    lines = output.decode("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return bool(_UNREACHABLE.search(last.strip())) and not _OF_A_COMMAND.search(last)


def one_line(output: bytes) -> str:
    """Return the end of an engine's output on one line."""
    return " ".join(output.decode("utf-8", "replace").split())[-_SHOWN_CHARS:]


_KILLED = 137
_CANNOT_RUN = 126
_SETTLE_S = 10.0
_TOKEN = "HARBOR_COMMAND"
"""Environment variable of a command and its descendants, by which a timeout finds them."""

STAY = "while :; do sleep 86400 & wait $!; done"
"""Script of the first process, which waits for orphans, as an init does."""

_ENDED = "/logs/.ended-"
"""Prefix of the files that name ended commands, which the engine may yet have to start."""

_SHELL = f"""[ ! -e "{_ENDED}${_TOKEN}" ] || exit {_KILLED}; eval "$(cat)"; exec < /dev/null
if command -v bash > /dev/null; then exec bash -c "$0"; else exec sh -c "$0"; fi"""
"""Script that takes a command's variables from its standard input. All users of this machine could read
them on a command line, and in the engine's own environment a task could set its LD_PRELOAD."""

_EXPORTED = re.compile(r"(?!(EUID|GROUPS|PPID|SHELLOPTS|BASHOPTS|UID)$)[A-Za-z_][A-Za-z0-9_]*")
"""Variables that every shell can set; others are no secrets, and stay on the command line."""

_END = f"""echo > "{_ENDED}$0"; for round in 1 2 3; do for one in /proc/[0-9]*; do
grep -qs "{_TOKEN}=$0" "$one/environ" && kill -9 "${{one#/proc/}}"; done; done; true"""
_OOM = """cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2> /dev/null |
sed -n 's/^oom_kill //p'"""


class Container(Environment):
    """One container. See `Environment`.

    Args:
        place: of a `NodeLimit`, released by `cleanup`.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        *,
        workdir: str,
        env: Mapping[str, str],
        user: str | None,
        tests: Tree = Tree(),  # noqa: B008 - immutable
        place: int | None = None,
    ) -> None:
        self._engine, self._name, self._place = engine, name, place
        self.workdir, self.env, self.user, self.tests = workdir, env, user, tests
        self._out_of_memory = 0
        self._has_run = False
        """True if a command ran before the verifier's turn."""
        self._verifying = False

    async def prepare(self) -> None:
        """See `Environment.prepare`."""
        await self._sh(FURNISH, self.workdir)

    async def execute(self, command: str, **terms: Unpack[Terms]) -> CommandResult:
        """See `Environment.run_command`."""
        self._has_run |= not self._verifying
        env, timeout_s, max_output = terms["env"], terms["timeout_s"], terms["max_output"]
        token = secrets.token_hex(16)
        exported = {key: one for key, one in env.items() if _EXPORTED.fullmatch(key)}
        others = {key: one for key, one in env.items() if key not in exported}
        who = None if terms["user"] is None else str(terms["user"])
        arguments = [
            *("exec", "--interactive", "--workdir", terms["cwd"]),
            *(word for key, one in others.items() for word in ("--env", f"{key}={one}")),
            *("--env", f"{_TOKEN}={token}"),
            *(("--user", who) if who is not None else ()),
            *(self._name, "sh", "-c", _SHELL, command),
        ]
        try:
            async with self._engine.calling(
                *arguments, stdin=_exports(exported), max_output=max_output
            ) as call:
                in_time = await self._wait(call, (token, who or "0"), timeout_s)
                code = call.ended.result() if call.ended.done() else _KILLED
                out, err = call.stdout.take(), call.stderr.take()
        except (OSError, ValueError) as error:  # too long, or contains a null byte
            message = f"the command cannot be run: {getattr(error, 'strerror', None) or error}"
            return CommandResult(stderr=message, exit_code=_CANNOT_RUN)
        killed = None if in_time else Killed.timeout
        if code != 0:
            await self.heartbeat()
        over_memory = (self._verifying or code == _KILLED) and await self._ran_out_of_memory()
        if over_memory and code == _KILLED and in_time:
            killed = Killed.memory
        return CommandResult(
            stdout=shown(*out, max_output),
            stderr=shown(*err, max_output),
            exit_code=code if in_time else _KILLED,
            killed=killed,
            over_memory=over_memory,
        )

    async def _wait(self, call: Call, mark: tuple[str, str], timeout_s: float | None) -> bool:
        """Return whether a command ended in time. Kill it on timeout or cancellation.

        Args:
            mark: the command's token and user.
        """
        try:
            await asyncio.wait([call.ended], timeout=timeout_s)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(*mark))
            raise
        if call.ended.done():
            return True
        await self._end(*mark)
        await asyncio.wait([call.ended], timeout=_SETTLE_S)
        return False

    async def _end(self, token: str, user: str) -> None:
        await self._engine.ask("exec", "--user", user, self._name, "sh", "-c", _END, token)

    async def _ran_out_of_memory(self) -> bool:
        before = self._out_of_memory
        counts = (await self._sh(_OOM)).split()
        self._out_of_memory = int(counts[0]) if counts else 0
        return self._out_of_memory > before

    # ── files ─────────────────────────────────────────────────────────────────────────────────────

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """See `Environment.read_file`."""
        content = (await self.read_tree(path, max_bytes)).file("")
        if content is None:
            raise IsADirectoryError(f"{path} is not a regular file")
        return content

    async def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """See `Environment.write_file`."""
        folder, _, name = self.absolute(path).rpartition("/")
        await self.write_tree(folder or "/", of_bytes(name, content, mode))

    async def _run(self, script: str, *arguments: str) -> CommandResult:
        code, out, err = await self._piped(script, *arguments, max_output=MAX_OUTPUT)
        return CommandResult(stdout=out.decode("utf-8", "replace"), stderr=err, exit_code=code)

    async def _piped(
        self, script: str, *arguments: str, stdin: bytes = b"", max_output: int = 0
    ) -> tuple[int, bytes, str]:
        words = ("exec", "--interactive", "--user", "0", self._name, "sh", "-c", script, *arguments)
        kept = max(2 * max_output, MAX_OUTPUT)
        code, out, err = await self._engine.run(*words, stdin=stdin, max_output=kept)
        return code, out, err.decode("utf-8", "replace")

    # ── the verifier's turn ───────────────────────────────────────────────────────────────────────

    async def begin_verifier(self) -> None:
        """See `Environment.begin_verifier`."""
        try:
            await self._engine.detach("restart", "-t", "0", self._name)
            await self._sh(ANEW)
        except EnvironmentFailed as error:
            if not self._has_run:
                raise
            # The engine still knows it: the agent removed what it starts with.
            await self._engine.ask("inspect", "--format", "{{.Id}}", self._name)
            raise OSError(f"the agent's container does not start again: {error}") from error
        self._out_of_memory = 0
        self._verifying = True

    async def end_verifier(self) -> None:
        """See `Environment.end_verifier`."""
        await self.begin_verifier()
        self._verifying = False

    async def heartbeat(self) -> None:
        """See `Environment.heartbeat`."""
        if not await self.is_alive():
            raise EnvironmentFailed(f"container {self._name} is not running")

    async def is_alive(self) -> bool:
        """Return whether the container runs."""
        inspect = ("inspect", "--format", "{{.State.Running}}", self._name)
        code, out, _ = await self._engine.run(*inspect)
        return code == 0 and out.strip() == b"true"

    async def cleanup(self) -> None:
        """See `Environment.cleanup`."""
        with suppress(EnvironmentFailed):
            await asyncio.shield(self._engine.ask("rm", "--force", "--volumes", self._name))
        place, self._place = self._place, None
        if place is not None:
            os.close(place)


def _exports(variables: Mapping[str, str]) -> bytes:
    """Return the shell script that sets variables.

    Raises:
        ValueError: a value has a null byte.
    """
    if any("\0" in value for value in variables.values()):
        raise ValueError("embedded null byte")
    lines = (f"export {key}={shlex.quote(value)}\n" for key, value in variables.items())
    return "".join(lines).encode("utf-8", "surrogateescape")
