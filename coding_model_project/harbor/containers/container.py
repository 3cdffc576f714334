"""An environment in a container of this machine's engine; see `base.Environment`.

Unlike in a room, an agent that is root may change the image's own programs, which the verifier then runs.
Restarting the container ends the agent's processes, and /tests and /logs/verifier are then recreated.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
from collections.abc import Mapping
from contextlib import suppress

from coding_model_project.harbor.containers.container_engine import Call, Engine
from coding_model_project.harbor.environment.base import (
    ANEW,
    FURNISH,
    MAX_FILE_BYTES,
    MAX_OUTPUT,
    CommandResult,
    Environment,
    EnvironmentFailed,
    Killed,
)
from coding_model_project.harbor.environment.output import shown
from coding_model_project.harbor.environment.tree import Tree, of_bytes

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
    """One container. See `Environment`."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        *,
        workdir: str,
        env: Mapping[str, str],
        user: str | None,
        tests: Tree = Tree(),  # noqa: B008 - immutable
    ) -> None:
        self._place: int | None = None
        self._engine, self._name = engine, name
        self.workdir, self.env, self.user, self.tests = workdir, env, user, tests
        self._out_of_memory = 0
        self._has_run = False
        """True if a command ran before the verifier's turn."""
        self._verifying = False

    def hold(self, place: int | None) -> None:
        """Keep a place of a `NodeLimit` until `cleanup`."""
        self._place = place

    async def prepare(self) -> None:
        """See `Environment.prepare`."""
        await self._sh(FURNISH, self.workdir)

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
        """See `Environment.run_command`."""
        self._has_run |= not self._verifying
        token = secrets.token_hex(16)
        exported = {key: one for key, one in env.items() if _EXPORTED.fullmatch(key)}
        others = {key: one for key, one in env.items() if key not in exported}
        who = None if user is None else str(user)
        arguments = [
            *("exec", "--interactive", "--workdir", cwd),
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
            await self._restart()
        except EnvironmentFailed as error:
            if not self._has_run:
                raise
            # The engine still knows it: the agent removed what it starts with.
            await self._engine.ask("inspect", "--format", "{{.Id}}", self._name)
            raise OSError(f"the agent's container does not start again: {error}") from error
        self._out_of_memory = 0
        self._verifying = True

    async def _restart(self) -> None:
        await self._engine.detach("restart", "-t", "0", self._name)
        await self._sh(ANEW)

    async def end_verifier(self) -> None:
        """See `Environment.end_verifier`."""
        await self.begin_verifier()
        self._verifying = False

    async def heartbeat(self) -> None:
        """See `Environment.heartbeat`."""
        running = await self._engine.ask("inspect", "--format", "{{.State.Running}}", self._name)
        if running != "true":
            raise EnvironmentFailed(f"container {self._name} is not running")

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
