"""A server of an application on a socket: its bounds on clients and requests, and its graceful shutdown.

Until a request has arrived, nobody has checked a token. So a server has a number of connections, a
request has some time to arrive in, and h11 bounds its headers. A program's clock starts when it runs,
never while its request waits (`Admission`).
"""

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
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.exceptions import HTTPException

from coding_model_project.errors import ConfigError
from coding_model_project.sandbox.fusion import wire

_SMOOTHING = 0.1
_LONGEST_WAIT_S = 30
_LEFT_AFTER_S = 5
"""Seconds after which another server may have taken this one's place."""


class Busy(HTTPException):
    """The server is full and ran nothing of the request.

    Args:
        retry_after_s: seconds until a place may be free, estimated from recent requests.
    """

    def __init__(self, retry_after_s: int) -> None:
        detail = f"the server is full, try again in {retry_after_s} s"
        super().__init__(429, detail, {"retry-after": str(retry_after_s)})


class Leaving(HTTPException):
    """The server is shutting down and ran nothing of the request."""

    def __init__(self) -> None:
        super().__init__(
            503,
            "the server is shutting down, send the request to another one",
            {wire.LEAVING: "1", "retry-after": str(_LEFT_AFTER_S), "connection": "close"},
        )


class Admission:
    """A limiter that runs `at_once` requests, queues `max_waiting` more in order, and rejects the rest.

    Once it is `leaving`, admitted requests finish as usual and new ones are rejected.
    """

    def __init__(self, at_once: int, max_waiting: int) -> None:
        self.places, self._max_waiting = at_once, max_waiting
        self._free = asyncio.Semaphore(at_once)
        self._typical_s = 0.1
        self.running = 0
        self.waiting = 0
        self.refused = 0
        self.waited_s = 0.0
        self.leaving = False

    @property
    def capacity(self) -> int:
        """Return the most requests that run or wait."""
        return self.places + self._max_waiting

    @property
    def idle(self) -> bool:
        """Return whether no request runs or waits."""
        return not self.running and not self.waiting

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place in which a program may run.

        Raises:
            Busy: too many requests already wait.
            Leaving: the server is shutting down.
        """
        if self.leaving:
            self.refused += 1
            raise Leaving
        if self.waiting >= self._max_waiting and self._free.locked():
            self.refused += 1
            raise Busy(self._retry_after_s())
        self.waiting += 1
        arrived = time.monotonic()
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
            self.waited_s += time.monotonic() - arrived
        self.running += 1
        started = time.monotonic()
        try:
            yield
        finally:
            self.running -= 1
            self._free.release()
            self._typical_s += _SMOOTHING * (time.monotonic() - started - self._typical_s)

    def _retry_after_s(self) -> int:
        seconds = self.waiting * self._typical_s / self.places
        return min(max(1, math.ceil(seconds)), _LONGEST_WAIT_S)


REQUEST_S = 60.0
"""Seconds for a request to arrive, with its body."""
_HEADER_BYTES = 64 << 10
_PAUSE_S = 0.001
"""Seconds between two connections, so that a flood of them leaves the event loop to others."""
_FULL_PAUSE_S = 0.1
"""Seconds after which a server without a place, or a process without descriptors, tries again."""
_TICKS = 10
"""Ticks of uvicorn, of 0.1 s, between looks for late requests."""
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
    server = Server(app, started, admission, last_answers_s)

    async def run() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        loop.add_signal_handler(signal.SIGTERM, task.cancel)  # while the sandbox starts
        async with around:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again at its end
            await server.serve(sockets=[listening])

    before = signal.getsignal(signal.SIGTERM)
    try:
        with (
            asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner,
            contextlib.suppress(asyncio.CancelledError),
        ):
            runner.run(run())
    finally:
        signal.signal(signal.SIGTERM, before)


def _connections(admission: Admission | None) -> int:
    """Return the most connections of a server, which leave half of the descriptors to the sandbox."""
    wanted = _CONNECTIONS + (admission.capacity if admission else 0)
    return min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


def config_of(app: Any, **options: Any) -> uvicorn.Config:
    """Return uvicorn's configuration of a `BoundedServer`; `options` are further ones of uvicorn's."""
    return uvicorn.Config(
        app,
        http="h11",  # httptools bounds no header
        ws="none",
        h11_max_incomplete_event_size=_HEADER_BYTES,
        access_log=False,
        lifespan="off",
        **options,
    )


class BoundedServer(uvicorn.Server):
    """A server that keeps at most `connections` open.

    A full one closes the connection whose request has been awaited the longest. If all are being
    answered, further ones wait in the kernel.

    Args:
        config: result of `config_of`.
    """

    def __init__(self, config: uvicorn.Config, connections: int) -> None:
        super().__init__(config)
        self._most = connections
        self._awaited: dict[Any, float] = {}
        """When the server began to wait for a connection's request, oldest first."""
        self._accepting: asyncio.Future[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        (listening,) = sockets or []
        listening.setblocking(False)
        listening.listen(self._most)
        self._accepting = asyncio.ensure_future(self._accept(listening))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        if self._accepting is not None and self._accepting.done():
            self._accepting.result()  # raises: nobody would be answered any more
        if counter % _TICKS == 0:
            self._close_late()
        return await super().on_tick(counter)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        protocol: Any = self.config.http_protocol_class
        while True:
            if len(self.server_state.connections) >= self._most:
                closed = self._close_longest_awaited()
                await asyncio.sleep(_PAUSE_S if closed else _FULL_PAUSE_S)
                continue
            try:
                connection, _ = await loop.sock_accept(listening)
                _, made = await loop.connect_accepted_socket(
                    lambda: protocol(
                        config=self.config, server_state=self.server_state, app_state={}
                    ),
                    connection,
                )
            except OSError:  # the process has no descriptors left, or the client is gone
                await asyncio.sleep(_FULL_PAUSE_S)
                continue
            self._awaited[made] = time.monotonic()
            await asyncio.sleep(_PAUSE_S)

    def _close_longest_awaited(self) -> bool:
        for connection in self._awaited:
            if connection in self.server_state.connections and _awaits_request(connection):
                connection.transport.abort()
                self._awaited.pop(connection)
                return True
        return False

    def _close_late(self) -> None:
        """Close connections whose request is late; uvicorn itself closes those that are idle."""
        now = time.monotonic()
        awaited = {}
        for connection in self.server_state.connections:
            if _awaits_request(connection):
                since = now if _is_idle(connection) else self._awaited.get(connection, now)
                awaited[connection] = since
                if now - since > REQUEST_S:
                    connection.transport.abort()
        self._awaited = dict(sorted(awaited.items(), key=lambda item: item[1]))


def _awaits_request(connection: Any) -> bool:
    cycle = connection.cycle
    return cycle is None or cycle.response_complete or cycle.more_body


def _is_idle(connection: Any) -> bool:
    """Return whether no byte has come since the last answer."""
    return connection.timeout_keep_alive_task is not None


class Server(BoundedServer):
    """A server that answers admitted requests before it ends; see `serve`."""

    def __init__(
        self,
        app: FastAPI,
        started: Callable[[], None],
        admission: Admission | None = None,
        last_answers_s: float = LAST_ANSWERS_S,
    ) -> None:
        config = config_of(
            app,
            log_level="warning",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_CUT_S if admission else math.ceil(last_answers_s),
        )
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
