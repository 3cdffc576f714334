"""The gateway's routes, and its server in the running event loop: on loopback for all, on a room's socket
for one.

Every request gets a reply or an error in the format of its own API.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from coding_model_project.harbor.gateway.chat import Chat
from coding_model_project.harbor.gateway.messages import Messages, error_body
from coding_model_project.harbor.gateway.requests import MODEL, Exchange, RequestError, read_object
from coding_model_project.harbor.gateway.responses import Responses
from coding_model_project.harbor.gateway.session import AgentSession, IsGone, Pending
from coding_model_project.server.listening import BoundedServer, config_of

_KEEP_ALIVE_S = 5.0
"""Seconds between signs of life in a stream whose reply is being generated."""
_MODEL = {"id": MODEL, "object": "model", "created": 0, "owned_by": "coding_model_project"}
_log = logging.getLogger(__name__)


Sessions = dict[bytes, AgentSession]
"""The open sessions. Only hashes of keys are stored and compared."""


def _session_of(sessions: Sessions, request: Request) -> AgentSession:
    """Return the session of a request's key.

    Raises:
        RequestError: no open session has this key.
    """
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    keys = [key if kind.lower() == "bearer" else "", request.headers.get("x-api-key", "")]
    for one in keys:
        if session := sessions.get(_hash(one.strip())):
            return session
    raise RequestError(
        "no sample has this key: send Authorization: Bearer OPENAI_API_KEY, or x-api-key",
        status=401,
        kind="authentication_error",
        code="invalid_api_key",
    )


def make_app(sessions: Sessions, *, max_bytes: int) -> Starlette:
    """Return the gateway as an ASGI application.

    Args:
        max_bytes: most bytes of a request's body.
    """

    async def read(request: Request, form: type[Exchange]) -> tuple[AgentSession, Exchange]:
        session = _session_of(sessions, request)
        session.admit()
        body = await _body(request, max_bytes)
        return session, form.read(body)

    def answers(form: type[Exchange]) -> Endpoint:
        async def answer(request: Request) -> Response:
            session, exchange = await read(request, form)
            is_gone = request.is_disconnected
            pending = await session.begin(exchange.ask, is_gone)
            if exchange.stream:
                events = _events(session, exchange, pending, is_gone)
                return StreamingResponse(events, media_type="text/event-stream")
            return JSONResponse(exchange.whole(await session.finish(pending, is_gone)))

        return answer

    async def count_tokens(request: Request) -> Response:
        session, exchange = await read(request, Messages)
        return JSONResponse({"input_tokens": await session.count(exchange.ask)})

    async def models(request: Request) -> Response:
        _session_of(sessions, request)
        is_list = "name" not in request.path_params
        return JSONResponse({"object": "list", "data": [_MODEL]} if is_list else _MODEL)

    async def shell(request: Request) -> Response:
        session = _session_of(sessions, request)
        session.admit()
        given = read_object(await _body(request, max_bytes))
        command, timeout_s = given.get("command"), given.get("timeout_s")
        is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
        is_time = timeout_s is None or (is_number and timeout_s > 0)
        if not isinstance(command, str) or not is_time:
            raise RequestError('send {"command": TEXT, "timeout_s": SECONDS or null}')
        ended = await session.run_command(command, timeout_s)
        killed = ended.killed and str(ended.killed)
        said = {name: getattr(ended, name) for name in ("stdout", "stderr", "exit_code")}
        return JSONResponse(said | {"killed": killed})

    async def unknown(request: Request) -> Response:
        raise RequestError(f"{request.method} {request.url.path:.200} is not served", status=404)

    posts = {
        "/v1/chat/completions": _guarded(answers(Chat)),
        "/v1/responses": _guarded(answers(Responses)),
        "/v1/messages": _guarded(answers(Messages), error_body),
        "/v1/messages/count_tokens": _guarded(count_tokens, error_body),
        "/v1/shell": _guarded(shell),
    }
    routes = [
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()),
        Route("/v1/models", _guarded(models), methods=["GET"]),
        Route("/v1/models/{name:path}", _guarded(models), methods=["GET"]),
        Route("/", lambda _: Response(), methods=["HEAD"]),
        Route("/{path:path}", _guarded(unknown), methods=["GET", "POST", "PUT", "DELETE"]),
    ]
    return Starlette(routes=routes)


Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


def _guarded(
    endpoint: Endpoint, body: Callable[[RequestError], Mapping[str, Any]] = RequestError.body
) -> Endpoint:
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as error:  # noqa: BLE001 - clients never get a traceback
            told = _told(error)
            return JSONResponse(body(told), told.status)

    return answered


async def _events(
    session: AgentSession, exchange: Exchange, pending: Pending, is_gone: IsGone
) -> AsyncIterator[str]:
    """Yield a stream: its head at once, signs of life, and the reply."""
    try:
        for text in exchange.begin(pending.prompt_tokens.result()):
            yield text
        while not (await asyncio.wait((pending.task,), timeout=_KEEP_ALIVE_S))[0]:
            yield exchange.waiting()
        for text in exchange.rest(await session.finish(pending, is_gone)):
            yield text
    except Exception as error:  # noqa: BLE001 - as above
        yield exchange.failed(_told(error))


def _told(error: Exception) -> RequestError:
    """Return an error as the client may know it."""
    if isinstance(error, RequestError):
        return error
    _log.error("a request to the gateway failed", exc_info=error)
    return RequestError(type(error).__name__, status=500, kind="server_error")


async def _body(request: Request, max_bytes: int) -> bytes:
    """Read a request's body, up to `max_bytes`.

    Raises:
        RequestError: it is too large.
    """
    too_large = RequestError(f"a request may have at most {max_bytes} bytes", status=413)
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > max_bytes:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


_CONNECTIONS = 512
"""Most connections on loopback, where the agents of all samples share the server."""
_CONNECTIONS_OF_A_ROOM = 32
_IDLE_S = 120
_LAST_ANSWERS_S = 5
_POLL_S = 0.01


class Gateway:
    """A process's endpoint. An async context manager.

    Args:
        max_bytes: most bytes of a request's body.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sessions: Sessions = {}
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

    @contextlib.contextmanager
    def open(self, session: AgentSession) -> Iterator[str]:
        """Accept a session's key on loopback; yields the address."""
        self._sessions[_hash(session.key)] = session
        try:
            yield f"http://127.0.0.1:{self._port}/v1"
        finally:
            del self._sessions[_hash(session.key)]

    @asynccontextmanager
    async def on(self, listening: socket.socket, session: AgentSession) -> AsyncIterator[None]:
        """Serve only this session on a socket. Its key is not accepted on loopback."""
        only = {_hash(session.key): session}
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
            timeout_keep_alive=_IDLE_S,
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
