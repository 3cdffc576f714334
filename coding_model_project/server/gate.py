"""What every request passes before it is read: its token and its size."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Mapping

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_OPEN_PATHS = ("/v1/ping", "/v1/ready")


class TooLarge(Exception):
    """A request's body goes on beyond the limit."""


class Gate:
    """Refuses requests without the token (401) or with too large a body (413).

    Args:
        token: asked for as `Authorization: Bearer TOKEN`, but for a ping and readiness; None asks for
            none.
        max_bytes: of a request's body.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, max_bytes: int) -> None:
        self._app = app
        self._token = token.encode() if token else None
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if scope["path"] not in _OPEN_PATHS and not self._may_enter(headers):
            await _refuse(401, "this server asks for a token")(scope, receive, send)
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._max_bytes:
            await self._too_large()(scope, receive, send)
            return
        received, too_large = 0, False

        async def counted() -> Message:
            nonlocal received, too_large
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                too_large = True
                raise TooLarge
            return message

        async def unless_too_large(message: Message) -> None:
            if not too_large:  # else the application answers the exception, in its own way
                await send(message)

        with contextlib.suppress(TooLarge):
            await self._app(scope, counted, unless_too_large)
        if too_large:
            await self._too_large()(scope, receive, send)

    def _may_enter(self, headers: Mapping[bytes, bytes]) -> bool:
        if self._token is None:
            return True
        given = headers.get(b"authorization", b"")
        return hmac.compare_digest(given, b"Bearer " + self._token)

    def _too_large(self) -> JSONResponse:
        return _refuse(413, f"a request may have at most {self._max_bytes} bytes")


def _refuse(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status)
