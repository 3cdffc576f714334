"""Middleware that checks every request's token, origin and size before it is read."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Mapping

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_OPEN_PATHS = ("/v1/ping", "/v1/ready")


class TooLarge(Exception):
    """A request's body exceeds the limit."""


class Gate:
    """Middleware that rejects requests without the token (401) or with too large a body (413).

    Args:
        token: required as `Authorization: Bearer TOKEN`, except by ping and readiness. None requires
            none, and rejects the pages of other sites (403).
        max_bytes: most bytes of a request's body.
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
            await _refuse(401, "this server requires a token: Authorization: Bearer TOKEN")(
                scope, receive, send
            )
            return
        if self._token is None and not _is_own_page(headers):
            await _refuse(403, "this server has no token, and answers no other site's pages")(
                scope, receive, send
            )
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
            if not too_large:  # otherwise this is the application's own answer to the exception
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


def _is_own_page(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request comes from no page of a browser, or from one at this address."""
    origin = headers.get(b"origin")
    return origin is None or origin == b"http://" + headers.get(b"host", b"")


def _refuse(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status)
