"""Bait that a program must not find or touch, and detection of processes and files that it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from coding_model_project.contained import is_ours
from coding_model_project.errors import SandboxError

_GONE_WITHIN_S = 3.0
"""Seconds after a case within which its processes must have ended."""

_PORTS_FREE_WITHIN_S = 60.0
_WATCHED = ("/tmp", "/var/tmp", "/dev/shm")
_MARK = "CODING_RUN_TOKEN"
"""Environment variable that zygotes inherit; it identifies their remaining processes."""


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextlib.contextmanager
def marked() -> Iterator[None]:
    with environment(_MARK, os.environ.get(_MARK) or secrets.token_hex(8)):
        yield


@contextlib.contextmanager
def lay_out(secret: str) -> Iterator[Callable[[], list[str]]]:
    """Place the secret and the listeners, and yield a function that returns the touched listeners.

    Raises:
        SandboxError: the addresses stay in use, or another user made the folder.
    """
    folder = Path("/tmp/sbx_canary")
    with contextlib.ExitStack() as stack:
        listeners = _listeners(stack, folder / "sock")
        stack.enter_context(environment("SBX_CANARY", secret))
        if not is_ours(folder):
            raise SandboxError(f"{folder}: another user made it; have them remove it")
        partial = folder / secrets.token_hex(8)
        partial.write_text(secret)
        partial.replace(folder / "secret.txt")
        stack.callback((folder / "secret.txt").unlink, missing_ok=True)

        def touched() -> list[str]:
            ready, _, _ = select.select(list(listeners), [], [], 0)
            return [listeners[listener] for listener in ready]

        yield touched


def _listeners(stack: contextlib.ExitStack, path: Path) -> dict[socket.socket, str]:
    """Open listeners, by name. A connection or a datagram makes one readable without being accepted."""
    path.parent.mkdir(mode=0o755, exist_ok=True)
    stack.callback(_remove_if_empty, path.parent)
    tcp, udp = (socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM)
    unix = (socket.AF_UNIX, socket.SOCK_STREAM)
    addresses: list[tuple[tuple[int, int], Any, str]] = [
        (tcp, ("127.0.0.1", 47921), "tcp"),
        (udp, ("127.0.0.1", 47922), "udp"),
        (unix, "\0sbx_canary_sock", "abstract unix"),
        (unix, str(path), "unix"),
    ]
    listeners: dict[socket.socket, str] = {}
    for (family, kind), address, name in addresses:
        listener = stack.enter_context(socket.socket(family, kind))
        if kind == socket.SOCK_STREAM:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listener, address)
        listeners[listener] = name
    stack.callback(path.unlink, missing_ok=True)
    return listeners


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _bind(listener: socket.socket, address: Any) -> None:
    deadline = time.monotonic() + _PORTS_FREE_WITHIN_S
    while True:
        try:
            if isinstance(address, str) and address.startswith("/"):
                Path(address).parent.mkdir(exist_ok=True)  # another battery may have removed it
                Path(address).unlink(missing_ok=True)  # left by a killed battery
            listener.bind(address)
            if listener.type == socket.SOCK_STREAM:
                listener.listen()
            return
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.ENOENT) or time.monotonic() > deadline:
                raise SandboxError(
                    f"the battery cannot listen on {address!r} ({error}); stop any other battery"
                ) from error
            time.sleep(0.2)


def processes() -> set[int]:
    """Return the descendants of this process, and any process that carries its mark."""
    found = {child.pid for child in psutil.Process().children(recursive=True)}
    mark = f"{_MARK}={os.environ[_MARK]}".encode()
    for name in (path.name for path in Path("/proc").iterdir() if path.name.isdigit()):
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{name}/environ").read_bytes():
                found.add(int(name))
    return found - {os.getpid()}


async def left_of(before: set[int]) -> list[str]:
    """Return the processes that a case left running, except the sandbox's own direct children."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while True:
        children = {child.pid for child in psutil.Process().children()}
        left = [str(pid) for pid in processes() - before - children if psutil.pid_exists(pid)]
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.02)


def files() -> set[str]:
    """Return the paths in world-writable folders and in the working directory, two levels deep."""
    found: set[str] = set()
    for top in (*_WATCHED, str(Path.cwd())):
        for folder, below, names in os.walk(top):
            found.update(f"{folder}/{name}" for name in (*names, *below))
            if folder != top:
                below.clear()
    return found
