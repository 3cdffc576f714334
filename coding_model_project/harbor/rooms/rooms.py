"""The host's side of rooms: the factory that makes them, and a room as an `Environment`."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import shlex
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from coding_model_project.concurrency import Once
from coding_model_project.grading.base import ROOMS
from coding_model_project.harbor.environment.base import (
    DEFAULT_MEMORY_MB,
    DEFAULT_PROCESSES,
    DEFAULT_STORAGE_MB,
    MAX_FILE_BYTES,
    CommandResult,
    Environment,
    EnvironmentFailed,
    Environments,
    Killed,
    NeedsContainer,
    Terms,
    prepared,
)
from coding_model_project.harbor.environment.definition import defined
from coding_model_project.harbor.environment.tree import Tree, of_bytes, shown
from coding_model_project.harbor.format.task_config import EnvironmentConfig
from coding_model_project.harbor.rooms.image import Image, Lay, read_image
from coding_model_project.harbor.rooms.root import CLEARING_S, interpreter_folder, packages_folder
from coding_model_project.isolation.child import Helper
from coding_model_project.isolation.proc_files import longest_s
from coding_model_project.sandbox.embedded import frames

_START_S = 60.0
_ANSWER_S = 60.0
"""Timeout of an answer in wall seconds, in addition to a command's own time."""

_MAX_ENTRIES = 20_000
_MAX_IMAGE_BYTES, _MAX_IMAGE_ENTRIES = 1 << 30, 200_000
_LENGTHS = struct.Struct("<II")

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/python/bin"
_ENV = {"PATH": PATH, "LANG": "C.UTF-8", "HOSTNAME": "room", "PYTHONNOUSERSITE": "1"}
"""Variables of every command. The last one stops Pythons from loading modules in home directories."""

_WITH_PACKAGES = {"PATH": f"{interpreter_folder()}/bin:{PATH}", "PYTHONPATH": packages_folder()}

_KEPT_IMAGES = 64
_SHOWN_CHARS = 400


def planned(folder: Path, config: EnvironmentConfig) -> Image:
    """Return the definition of an environment's image. Starts nothing.

    Raises:
        NeedsContainer: rooms do not support the environment.
        ImageError: no engine can build it either.
    """
    if config.gpus:
        raise NeedsContainer("environment.gpus: rooms have no accelerators")
    return read_image(folder, config.docker_image)


class EmbeddedEnvironments(Environments):
    """A factory of environments in this machine's namespaces. See `base.Environments`.

    It makes images once, and a room for each trial. A room's network is only its own loopback, whatever
    the task's network_mode. Otherwise rewards would depend on which hosts a task reaches that day.

    Args:
        agent: a folder that rooms mount at /opt/agent, read-only.
    """

    identity = f"harbor/{ROOMS}"

    def __init__(self, agent: Path | None = None) -> None:
        self._agent = agent and agent.resolve()
        self._keeper: Helper | None = None
        self._restarting = asyncio.Lock()
        self._images: Once[tuple[Path, str | None], tuple[Image, Tree]] = Once(_KEPT_IMAGES)

    async def __aenter__(self) -> Self:
        """Start the keeper.

        Raises:
            EnvironmentFailed: this machine has no user namespaces, or they are too restricted.
        """
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.to_thread(keeper.stop)

    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> Environment:
        """See `Environments.create`."""
        config = defined(folder, config, env)
        limits = {
            "memory_mb": config.memory_mb or DEFAULT_MEMORY_MB,
            "storage_mb": config.storage_mb or DEFAULT_STORAGE_MB,
        }

        async def make() -> tuple[Image, Tree]:
            image = planned(folder, config)
            async with asyncio.timeout(config.build_timeout_sec):
                return image, await self._made(image, limits)

        image, files = await self._images.get((folder, config.docker_image), make)
        own = replace(
            image, workdir=config.workdir or image.workdir, env={**image.env, **config.env}
        )
        return await self._room(own, files, limits)

    async def _made(self, image: Image, limits: Mapping[str, int]) -> Tree:
        """Return an image's files, which are made in a room if it has commands.

        Raises:
            NeedsContainer: a command failed.
            EnvironmentFailed: the room was lost.
        """
        if all(isinstance(step, Lay) for step in image.steps):
            return image.files
        room = await self._room(Image(packages=image.packages), Tree(), limits)
        try:
            for step in image.steps:
                if isinstance(step, Lay):
                    await room.write_tree(step.path, step.files)
                    continue
                line = step.instruction
                command = shlex.join(("/bin/sh", "-c", line.text))
                ended = await room.run_command(command, cwd=step.cwd, env=step.env, user=step.user)
                if ended.exit_code != 0:
                    output = (ended.stderr or ended.stdout).strip()[-_SHOWN_CHARS:]
                    raise line.refused(
                        f"exited with code {ended.exit_code} in a room, which has no network and no "
                        f"other programs than this machine's: {output}"
                    )
            return await room.changes()
        finally:
            await room.cleanup()

    async def _room(self, image: Image, files: Tree, limits: Mapping[str, int]) -> Room:
        """Create a room.

        Args:
            files: copied over the root; they include what the image's commands have made.

        Raises:
            EnvironmentFailed: it could not be created.
        """
        if self._keeper is None:
            raise EnvironmentFailed(
                "the keeper is not started; use `async with` on the environments"
            )
        head = {**limits, "processes": DEFAULT_PROCESSES, "packages": image.packages}
        room = Room(await self._ask(self._keeper, head), image, files)
        await prepared(room)
        return room

    async def _start(self) -> None:
        """Start the keeper. It dies at the latest with the thread that starts it."""
        setup = json.dumps({"agent": str(self._agent) if self._agent else None})
        try:
            with Helper.starting(
                f"{__package__}.keeper", setup, kind=socket.SOCK_SEQPACKET
            ) as keeper:
                if await asyncio.to_thread(keeper.channel.recv, 100) != b"ready":
                    raise EOFError("the keeper ended")
        except ChildProcessError as error:
            raise EnvironmentFailed(
                f"this machine cannot make rooms of namespaces ({error}); allow user namespaces, or run "
                "the tasks in containers: --environment docker"
            ) from error
        self._keeper = keeper

    async def _ask(self, keeper: Helper, room: dict[str, Any]) -> socket.socket:
        """Return a channel to a new steward. Restart the keeper if it is gone."""
        ours, theirs = socket.socketpair()
        head = json.dumps(room).encode()
        try:
            try:
                socket.send_fds(keeper.channel, [head], [theirs.fileno()])
            except OSError:
                async with self._restarting:
                    if self._keeper is keeper:
                        await asyncio.to_thread(keeper.stop)
                        await self._start()
                newest = self._keeper or keeper
                socket.send_fds(newest.channel, [head], [theirs.fileno()])
        except (OSError, EnvironmentFailed) as error:
            ours.close()
            raise EnvironmentFailed(f"the keeper of rooms is gone: {error}") from error
        finally:
            theirs.close()
        return ours


class Room(Environment):
    """One room, served by its steward. See `Environment`."""

    def __init__(self, channel: socket.socket, image: Image, files: Tree) -> None:
        channel.setblocking(False)
        self._channel: socket.socket | None = channel
        self._files = files
        self.workdir, self.user = image.workdir, image.user
        self.env = {**_ENV, **(_WITH_PACKAGES if image.packages else {}), **image.env}
        self.tests, self.notes = files.within("tests"), image.notes
        self._turn = asyncio.Lock()
        self._descriptors: list[int] = []
        """Those that came with answers."""

    async def prepare(self) -> None:
        """Wait until the room is ready, and write its files.

        Raises:
            EnvironmentFailed: it could not be created.
        """
        await self._receive(_START_S)
        if self._files.entries:
            await self.write_tree("/", self._files)
        await self.write_tree(self.workdir, Tree())

    async def execute(self, command: str, **terms: Unpack[Terms]) -> CommandResult:
        """See `Environment.run_command`."""
        timeout_s, max_output = terms["timeout_s"], terms["max_output"]
        what = {"text": command, **terms}
        wait_s = None if timeout_s is None else longest_s(timeout_s) + _ANSWER_S
        head, body = await self._ask({"do": "run", "command": what}, wait_s=wait_s)
        if head["failed"]:
            raise EnvironmentFailed(f"a command could not be started: {head['failed']}")
        out, err = body[: head["stdout"]], body[head["stdout"] :]
        lost_out, lost_err = head["lost"]
        return CommandResult(
            stdout=shown(out, lost_out, max_output),
            stderr=shown(err, lost_err, max_output),
            exit_code=head["exit"],
            killed=Killed(head["killed"]) if head["killed"] else None,
        )

    async def read_file(self, path: str, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """See `Environment.read_file`."""
        request = {"do": "read", "path": self.absolute(path), "max_bytes": max_bytes}
        return (await self._ask(request))[1]

    async def write_file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """See `Environment.write_file`."""
        folder, _, name = self.absolute(path).rpartition("/")
        await self.write_tree(folder or "/", of_bytes(name, content, mode))

    async def read_tree(
        self, path: str, max_bytes: int = MAX_FILE_BYTES, only: Sequence[str] | None = None
    ) -> Tree:
        """See `Environment.read_tree`."""
        what = {"max_bytes": max_bytes, "max_entries": _MAX_ENTRIES, "only": only}
        return await self._pack({"do": "pack", "path": self.absolute(path), **what})

    async def changes(self) -> Tree:
        """Return all of the room's own files, without the host's, as a tree of the root.

        Raises:
            OSError: they are too large.
            EnvironmentFailed: the room is lost.
        """
        bounds = {"max_bytes": _MAX_IMAGE_BYTES, "max_entries": _MAX_IMAGE_ENTRIES}
        return await self._pack({"do": "changes", **bounds})

    async def _pack(self, request: dict[str, Any]) -> Tree:
        head, body = await self._ask(request)
        return Tree.of_frame(head["entries"], body)

    async def write_tree(self, path: str, tree: Tree) -> None:
        """See `Environment.write_tree`."""
        entries, body = tree.frame()
        request = {"do": "write", "path": self.absolute(path), "entries": entries}
        await self._ask(request, body)

    async def listen(self, port: int) -> socket.socket:
        """Return a socket that listens on the room's own loopback, for this process to serve.

        Nothing outside the room reaches it, and the room reaches nothing else through it.

        Raises:
            OSError: the port is taken.
            EnvironmentFailed: the room is lost.
        """
        try:
            await self._ask({"do": "listen", "port": port})
        except BaseException:
            while self._descriptors:
                os.close(self._descriptors.pop())
            raise
        return socket.socket(fileno=self._descriptors.pop())

    async def begin_verifier(self) -> None:
        """See `Environment.begin_verifier`."""
        await self._ask({"do": "verify"}, wait_s=CLEARING_S + _ANSWER_S)

    async def end_verifier(self) -> None:
        """See `Environment.end_verifier`."""
        await self._ask({"do": "resume"})

    async def heartbeat(self) -> None:
        """See `Environment.heartbeat`."""
        if not self._turn.locked():  # else a command is running, and its answer shows the state
            await self._ask({"do": "alive"})

    async def cleanup(self) -> None:
        """See `Environment.cleanup`."""
        channel, self._channel = self._channel, None
        if channel is None:
            return
        loop = asyncio.get_running_loop()
        with suppress(OSError, asyncio.TimeoutError):
            channel.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(_START_S):
                while await loop.sock_recv(channel, 1 << 16):
                    pass  # the steward closes its end when the whole room is gone
        channel.close()

    # ── the channel ───────────────────────────────────────────────────────────────────────────────

    async def _ask(
        self, request: dict[str, Any], body: bytes = b"", wait_s: float | None = _ANSWER_S
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request to the steward, and return its answer.

        Raises:
            OSError: the requested path does not exist or is not accessible.
            EnvironmentFailed: the room is lost.
        """

        async def exchange() -> tuple[dict[str, Any], bytes]:
            await self._send(request, body)
            return await self._receive(wait_s)

        async with self._turn:
            asking = asyncio.ensure_future(exchange())
            try:
                head, content = await asyncio.shield(asking)
            except asyncio.CancelledError:
                await self._interrupt(asking, request)
                raise
        if "error" in head:
            kind = getattr(
                builtins, head["error"], OSError
            )  # steward's errors are these, or TooLarge
            raise kind(head["message"])
        return head, content

    async def _interrupt(self, asking: asyncio.Task[Any], request: dict[str, Any]) -> None:
        """Interrupt a cancelled request, and read its answer so that it does not stay in the channel."""
        if request["do"] == "run" and not asking.done():
            with suppress(EnvironmentFailed):
                await self._send({"do": "interrupt"}, b"")
        with suppress(EnvironmentFailed):
            await asking

    async def _send(self, request: dict[str, Any], body: bytes) -> None:
        try:
            async with asyncio.timeout(_ANSWER_S):
                frame = frames.encoded(request, body)
                await asyncio.get_running_loop().sock_sendall(self._open(), frame)
        except OSError as error:
            raise EnvironmentFailed(f"the room is lost: {error or 'no answer'}") from error

    async def _receive(self, wait_s: float | None) -> tuple[dict[str, Any], bytes]:
        try:
            async with asyncio.timeout(wait_s):
                head, body = _LENGTHS.unpack(await self._exactly(_LENGTHS.size))
                data = await self._exactly(head + body)
        except (OSError, EOFError) as error:
            raise EnvironmentFailed(f"the room is lost: {error or 'no answer'}") from error
        answer = json.loads(data[:head])
        if "broken" in answer:
            raise EnvironmentFailed(f"the room failed: {answer['broken']}")
        return answer, data[head:]

    async def _exactly(self, n: int) -> bytes:
        """Receive so many bytes, and any descriptors that come with them."""
        buffer = bytearray()
        while len(buffer) < n:
            try:
                most = min(n - len(buffer), 1 << 20)
                chunk, descriptors, _, _ = socket.recv_fds(self._open(), most, 1)
            except BlockingIOError:
                await self._readable()
                continue
            if not chunk:
                raise EOFError("the steward ended")
            buffer += chunk
            self._descriptors += descriptors
        return bytes(buffer)

    async def _readable(self) -> None:
        loop, channel, ready = asyncio.get_running_loop(), self._open(), asyncio.Event()
        loop.add_reader(channel, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(channel)

    def _open(self) -> socket.socket:
        if self._channel is None:
            raise EnvironmentFailed("the room is cleaned up")
        return self._channel
