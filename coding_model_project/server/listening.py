"""Serves an application on a socket until told to stop; what runs then is answered first."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import uvicorn
from fastapi import FastAPI

from coding_model_project.errors import ConfigError

_BACKLOG = 2048
_LAST_ANSWERS_S = 30
_KEEP_ALIVE_S = 75


def check_exposure(host: str, token: str | None) -> None:
    """Refuse to run anybody's programs.

    Raises:
        ConfigError: the address is reached from elsewhere, and there is no token.
    """
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local and not token:
        raise ConfigError(
            f"--host={host} is reached from elsewhere: set --token or CODING_SANDBOX_TOKEN, "
            "or bind to 127.0.0.1"
        )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        OSError: the address is taken, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listening


def serve(
    app: FastAPI,
    around: AbstractAsyncContextManager[object],
    listening: socket.socket,
    started: Callable[[], None],
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        around: what runs as long as the server does, such as a sandbox.
        started: called once requests are answered.

    Raises:
        SandboxError: the sandbox does not start here.
        KeyboardInterrupt: after SIGINT, once all is stopped.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
    )

    async def run() -> None:
        async with around:
            await _Server(config, started).serve(sockets=[listening])

    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again at its end
    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(run())
    finally:
        signal.signal(signal.SIGTERM, before)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._say = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._say()
