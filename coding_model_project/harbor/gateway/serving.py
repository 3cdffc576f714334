"""The gateway's server in the running event loop: on loopback for all, on a room's socket for one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from coding_model_project.harbor.gateway.agent_session import AgentSession
from coding_model_project.harbor.gateway.app import Sessions, make_app
from coding_model_project.server.listening import BoundedServer, config_of

_CONNECTIONS = 512
"""Most connections on loopback, where the agents of all samples share the server."""
_CONNECTIONS_OF_A_ROOM = 32
_KEEP_ALIVE_S = 120
_LAST_ANSWERS_S = 5
_POLL_S = 0.01


class Gateway:
    """A process's endpoint. An async context manager.

    Args:
        max_bytes: most bytes of a request's body.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sessions = Sessions()
        self._stack = contextlib.AsyncExitStack()
        self._port = 0

    async def __aenter__(self) -> Gateway:
        listening = socket.create_server(("127.0.0.1", 0))
        self._port = listening.getsockname()[1]
        await self._stack.enter_async_context(
            self._serving(self._sessions, listening, _CONNECTIONS)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def base_url(self) -> str:
        """The address for programs on this machine."""
        return f"http://127.0.0.1:{self._port}/v1"

    @contextlib.contextmanager
    def open(self, session: AgentSession) -> Iterator[str]:
        """Accept a session's key on loopback; yields the address."""
        self._sessions.add(session)
        try:
            yield self.base_url
        finally:
            self._sessions.remove(session)

    @asynccontextmanager
    async def on(self, listening: socket.socket, session: AgentSession) -> AsyncIterator[None]:
        """Serve only this session on a socket. Its key is not accepted on loopback."""
        only = Sessions()
        only.add(session)
        async with self._serving(only, listening, _CONNECTIONS_OF_A_ROOM):
            yield

    @asynccontextmanager
    async def _serving(
        self, sessions: Sessions, listening: socket.socket, connections: int
    ) -> AsyncIterator[None]:
        """Serve on a listening socket, and close it at the end."""
        config = config_of(
            make_app(sessions, max_bytes=self._max_bytes),
            log_config=None,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_LAST_ANSWERS_S,
        )
        server = _Server(config, connections)
        task = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            while not server.started and not task.done():
                await asyncio.sleep(_POLL_S)
            if task.done():
                task.result()
            yield
        finally:
            server.should_exit = True
            server.force_exit = True
            await asyncio.gather(task, return_exceptions=True)
            listening.close()


class _Server(BoundedServer):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the host process."""
        yield
