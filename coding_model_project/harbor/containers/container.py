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
from collections.abc import Mapping, Sequence
from contextlib import suppress

from coding_model_project.harbor.containers.container_engine import Call, Engine
from coding_model_project.harbor.environment.base import (
    MAX_FILE_BYTES,
    CommandResult,
    Environment,
    EnvironmentFailed,
    Killed,
    ports,
)
from coding_model_project.harbor.environment.output import shown
from coding_model_project.harbor.environment.scripts import ANEW, FURNISH, SOCKETS
from coding_model_project.harbor.environment.tar_files import from_tar, to_tar
from coding_model_project.harbor.environment.tree import Tree, of_bytes

_KILLED = 137
_CANNOT_RUN = 126
_SETTLE_S = 10.0
_TOKEN = "HARBOR_COMMAND"
"""Environment variable of a command and its descendants, by which a timeout finds them."""

STAY = "while :; do sleep 86400 & wait $!; done"
"""Script of the first process, which waits for orphans, as an init does."""

_SHELL = """eval "$(cat)"; exec < /dev/null
if command -v bash > /dev/null; then exec bash -c "$0"; else exec sh -c "$0"; fi"""
"""Script that takes a command's variables from its standard input. All users of this machine could read
them on a command line, and in the engine's own environment a task could set its LD_PRELOAD."""

_EXPORTED = re.compile(r"(?!(EUID|GROUPS|PPID|SHELLOPTS|BASHOPTS|UID)$)[A-Za-z_][A-Za-z0-9_]*")
"""Variables that every shell can set; others are no secrets, and stay on the command line."""

_END = """for round in 1 2 3; do for one in /proc/[0-9]*; do
grep -qs "$0" "$one/environ" && kill -9 "${one#/proc/}"; done; done; true"""
_OOM = """cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2> /dev/null |
sed -n 's/^oom_kill //p'"""
_ABSENT, _UNREADABLE, _FILE, _PROGRAM = 44, 45, 46, 47
_PACK = """most=$0; path=$1; shift; [ -e "$path" ] || exit 44
if [ -f "$path" ]; then head -c "$most" "$path" || exit 45; [ -x "$path" ] && exit 47; exit 46; fi
cd "$path" || exit 45
if [ $# = 0 ]; then set -- .; else
    for one in "$@"; do shift; if [ -e "$one" ] || [ -L "$one" ]; then set -- "$@" "$one"; fi; done; fi
[ $# = 0 ] || tar -cf - -- "$@" | head -c "$most" """
"""A script that prints a file, or a folder as a tar file; the exit code tells which."""


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
        await self._sh(_END, f"{_TOKEN}={token}", user=user)

    async def _ran_out_of_memory(self) -> bool:
        before = self._out_of_memory
        counts = (await self._sh(_OOM)).split()
        self._out_of_memory = int(counts[0]) if counts else 0
        return self._out_of_memory > before

    # ── files ─────────────────────────────────────────────────────────────────────────────────────

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """See `Environment.read_file`."""
        found = await self.read_tree(path, max_bytes)
        content = found.file("")
        if content is None:
            raise IsADirectoryError(f"{path} is not a regular file")
        return content

    async def read_tree(
        self, path: str, max_bytes: int = MAX_FILE_BYTES, only: Sequence[str] | None = None
    ) -> Tree:
        """See `Environment.read_tree`."""
        limit = 2 * max_bytes + (1 << 20)
        code, packed, err = await self._engine.run(
            *(
                "exec",
                "--user",
                "0",
                self._name,
                "sh",
                "-c",
                _PACK,
                str(limit),
                self.absolute(path),
            ),
            *(only or ()),
            max_output=2 * limit,
        )
        if code == _ABSENT:
            raise FileNotFoundError(f"{path}: no such file")
        if code not in (0, _FILE, _PROGRAM):
            await self.heartbeat()
            raise OSError(f"{path}: {err.decode('utf-8', 'replace').strip()}")
        if len(packed) >= limit:
            raise OSError(f"{path}: more than {max_bytes} bytes")
        if code != 0:
            mode = 0o755 if code == _PROGRAM else 0o644
            if len(packed) > max_bytes:
                raise OSError(f"{path}: more than {max_bytes} bytes")
            return of_bytes("", packed, mode)
        try:
            return from_tar(packed, max_bytes) if packed else Tree()
        except OSError as error:
            raise OSError(f"{path}: {error}") from error

    async def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """See `Environment.write_file`."""
        folder, _, name = self.absolute(path).rpartition("/")
        await self.write_tree(folder or "/", of_bytes(name, content, mode))

    async def write_tree(self, path: str, tree: Tree) -> None:
        """See `Environment.write_tree`."""
        script = 'mkdir -p "$0" && tar -xmf - -C "$0"'
        code, _, err = await self._engine.run(
            *("exec", "--interactive", "--user", "0", self._name, "sh", "-c", script),
            self.absolute(path),
            stdin=to_tar(tree),
        )
        if code != 0:
            await self.heartbeat()
            raise OSError(f"{path}: {err.decode('utf-8', 'replace').strip()}")

    # ── the verifier's turn ───────────────────────────────────────────────────────────────────────

    async def listening(self) -> frozenset[int]:
        """See `Environment.listening`. Empty if the agent removed what lists them."""
        words = ("exec", "--user", "0", self._name, "sh", "-c", SOCKETS)
        return ports((await self._engine.run(*words))[1].decode("utf-8", "replace"))

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

    async def _sh(self, script: str, *arguments: str, user: str = "0") -> str:
        return await self._engine.ask(
            *("exec", "--user", user, self._name, "sh", "-c", script, *arguments)
        )


def _exports(variables: Mapping[str, str]) -> bytes:
    """Return the shell script that sets variables.

    Raises:
        ValueError: a value has a null byte.
    """
    if any("\0" in value for value in variables.values()):
        raise ValueError("embedded null byte")
    lines = (f"export {key}={shlex.quote(value)}\n" for key, value in variables.items())
    return "".join(lines).encode("utf-8", "surrogateescape")
