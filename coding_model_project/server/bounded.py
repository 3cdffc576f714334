"""A uvicorn server with bounds on what a client may hold before its request has arrived.

Until then nobody has checked a token. So a server has a number of connections, a request has some time
to arrive in, and h11 bounds its headers.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import uvicorn

REQUEST_S = 60.0
"""Seconds for a request to arrive, with its body."""
_HEADER_BYTES = 64 << 10
_PAUSE_S = 0.001
"""Seconds between two connections, so that a flood of them leaves the event loop to others."""
_FULL_PAUSE_S = 0.1
"""Seconds after which a server without a place, or a process without descriptors, tries again."""
_TICKS = 10
"""Ticks of uvicorn, of 0.1 s, between looks for late requests."""


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
