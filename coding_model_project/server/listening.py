"""A server of an application on a socket that answers running requests before it shuts down."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import math
import resource
import signal
import socket
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from coding_model_project.errors import ConfigError
from coding_model_project.server.admission import Admission
from coding_model_project.server.bounded import BoundedServer, config_of

LAST_ANSWERS_S = 30.0
"""Seconds for running requests to finish after the server gets a signal to end."""
_KEEP_ALIVE_S = 75
_CUT_S = 2
"""Seconds for the last bytes of answers, after nothing runs any more or the rest is cut off."""
_CONNECTIONS = 512
"""Connections beyond those of the requests that run or wait: idle ones, and refusals."""


def check_exposure(host: str, token: str | None) -> None:
    """Check that a server that other machines can reach has a token.

    Raises:
        ConfigError: other machines can reach the address, and there is no token.
    """
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local and not token:
        raise ConfigError(
            f"--host={host}: other machines can reach this address and no token is set; set --token or "
            "CODING_SANDBOX_TOKEN, or bind to 127.0.0.1"
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises:
        ConfigError: the address is taken, not allowed, or not this machine's.
        OSError: no socket can be opened, for another reason.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        reason = f"cannot listen on {host}:{port}: {error.strerror or error}"
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise ConfigError(
                f"--port={port}: {reason}; pass another port, such as --port 0 for a free one"
            ) from error
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            raise ConfigError(
                f"--host={host}: {reason}; pass an address of this machine, such as --host 127.0.0.1"
            ) from error
        raise OSError(reason) from error
    return listening


def serve(
    app: FastAPI,
    around: AbstractAsyncContextManager[object],
    listening: socket.socket,
    started: Callable[[], None],
    admission: Admission | None = None,
    last_answers_s: float = LAST_ANSWERS_S,
) -> None:
    """Serve until SIGINT or SIGTERM; a second signal ends it at once.

    Args:
        around: entered while the server runs, such as a sandbox.
        started: called once requests are answered.
        admission: the application's: admitted requests are answered before the end, new ones are
            rejected with `Leaving`.
        last_answers_s: seconds after which running requests are cut off.

    Raises:
        SandboxError: the sandbox does not start here.
        KeyboardInterrupt: after SIGINT, once everything has stopped.
    """
    config = config_of(
        app,
        log_level="warning",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_CUT_S if admission else math.ceil(last_answers_s),
    )

    async def run() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGTERM, task.cancel)  # while the sandbox starts
        async with around:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again at its end
            await _Server(config, started, admission, last_answers_s).serve(sockets=[listening])

    before = signal.getsignal(signal.SIGTERM)
    try:
        with (
            asyncio.Runner(loop_factory=config.get_loop_factory()) as runner,
            contextlib.suppress(asyncio.CancelledError),
        ):
            runner.run(run())
    finally:
        signal.signal(signal.SIGTERM, before)


def _connections(admission: Admission | None) -> int:
    """Return the most connections of a server, which leave half of the descriptors to the sandbox."""
    wanted = _CONNECTIONS + (admission.capacity if admission else 0)
    return min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


class _Server(BoundedServer):
    def __init__(
        self,
        config: uvicorn.Config,
        started: Callable[[], None],
        admission: Admission | None,
        last_answers_s: float,
    ) -> None:
        super().__init__(config, _connections(admission))
        self._on_start, self._admission = started, admission
        self._last_answers_s, self._ends_at = last_answers_s, math.inf

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Reject new requests and finish admitted ones; at a second signal, end."""
        if self._admission is None or self._admission.leaving or not self.started:
            super().handle_exit(sig, frame)
            return
        self._captured_signals.append(sig)  # raised again at the end, as by uvicorn itself
        self._admission.leaving = True
        self._ends_at = time.monotonic() + self._last_answers_s

    async def on_tick(self, counter: int) -> bool:
        admission = self._admission
        if admission is not None and admission.leaving:
            self.should_exit |= admission.idle or time.monotonic() > self._ends_at
        return await super().on_tick(counter)
