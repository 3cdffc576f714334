"""One SandboxFusion server: requests to it, and its health."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import KW_ONLY, dataclass, field

import httpx

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.http import Service, reason, retry_after_s
from coding_model_project.redaction import redacted
from coding_model_project.sandbox.fusion import wire

_MAX_BYTES = 128 << 20
"""Most bytes of an answer: no valid one is longer."""

_FIRST_COOLING_S, _LONGEST_COOLING_S = 1.0, 30.0
_FAILURES_TO_COOL = 2
"""Failures after which a server rests: a single one may be a connection closed after an HTTP 500."""

_BUSY, _LEAVING = 429, 503
_NO_SUCH_PATH = (404, 405)
_OUR_FAULT = (400, 413, 422)
_NO_ENTRY = (401, 403)


@dataclass(eq=False)
class Unavailable(Exception):
    """The server failed this time; the request can be retried, perhaps on another one."""

    reason: str
    _: KW_ONLY
    retry_after_s: float | None = None
    """Seconds until a retry, if the server says so."""
    down: bool = False
    """True if nothing listens there, or nothing answers."""
    not_begun: bool = False
    """True if nothing of the request ran: it did not arrive, or the server is busy."""
    leaving: bool = False
    """True if the server is shutting down and rejects new requests."""
    service: Service | None = None
    """The server, for reports of its outages."""

    def __str__(self) -> str:
        return self.reason


class NoSuchPath(Unavailable):
    """The server, or a proxy before it, knows no such path."""


class NotSandboxFusion(Unavailable):
    """Something other than SandboxFusion answers at the address, such as a proxy in its place."""


@dataclass(slots=True, eq=False)
class Endpoint:
    """A server's address and health."""

    url: str
    known: bool = False
    """True once its start-up probe passed, until nothing listens there or it says that it leaves."""
    failures: int = 0
    """Consecutive failures."""
    rests_until: float = 0.0
    """Time on the monotonic clock before which it gets no requests, unless all servers rest."""
    in_flight: int = 0
    places: int | None = None
    """Requests that it runs at once; None if it does not say so."""
    checking: asyncio.Lock = field(default_factory=asyncio.Lock)
    name: str = field(init=False)
    """Its address in messages."""
    service: Service = field(init=False)

    def __post_init__(self) -> None:
        self.name = redacted(self.url)
        self.service = Service("sandbox server", self.url)

    def rests(self) -> bool:
        return time.monotonic() < self.rests_until

    def worked(self) -> None:
        self.failures, self.rests_until = 0, 0.0
        self.service.worked()

    def failed(self, error: Unavailable) -> None:
        """Rest the server for a while, longer each time, unless this was its first failure."""
        if error.leaving or (error.down and error.not_begun):
            self.known = False  # a server that comes back at its address may be another one
        if error.retry_after_s is not None:  # busy, not broken
            self.rests_until = time.monotonic() + error.retry_after_s
            return
        self.failures += 1
        if error.down or self.failures >= _FAILURES_TO_COOL:
            pause_s = _FIRST_COOLING_S * 2 ** min(self.failures - 1, 10)
            self.rests_until = time.monotonic() + min(pause_s, _LONGEST_COOLING_S)

    async def ping(self, client: httpx.AsyncClient, within_s: float) -> None:
        """Check that the server answers in time.

        Raises:
            Unavailable: it does not answer now.
            NotSandboxFusion: something else answers.
            ConfigError: it rejects the token.
        """
        status, headers, data = await self._exchange(client, "GET", "/v1/ping", None, within_s)
        if status == 200 and data.strip() == b'"pong"':
            places = headers.get(wire.PLACES, "")
            self.places = int(places) if places.isdecimal() and int(places) else None
            return
        if status == _BUSY or status >= 500:
            raise Unavailable(f"HTTP {status}", retry_after_s=_retry_after_s(headers))
        raise NotSandboxFusion(f"GET /v1/ping gives HTTP {status}, {wire.describe(data)}")

    async def post(
        self, client: httpx.AsyncClient, path: str, body: wire.Body, timeout_s: float
    ) -> bytes:
        """Send a request to run code, and return the answer's content.

        Raises:
            NoSuchPath: the server does not know this path.
            Unavailable: no answer, or not that of a working SandboxFusion.
            SandboxError: it rejects this request as malformed or too large.
            ConfigError: it rejects the token.
        """
        content = json.dumps(body).encode()
        status, headers, data = await self._exchange(client, "POST", path, content, timeout_s)
        if status in _OUR_FAULT:
            raise SandboxError(f"{self.name} rejects a request with HTTP {status}: {_tail(data)}")
        if status in _NO_SUCH_PATH:
            raise NoSuchPath(f"HTTP {status}: {_tail(data)}")
        if status != 200:
            leaving = status == _LEAVING and wire.LEAVING in headers
            raise Unavailable(
                f"HTTP {status}: {_tail(data)}",
                retry_after_s=_retry_after_s(headers),
                not_begun=status == _BUSY or leaving,
                leaving=leaving,
            )
        return data

    async def _exchange(
        self,
        client: httpx.AsyncClient,
        method: str,
        path: str,
        content: bytes | None,
        timeout_s: float,
    ) -> tuple[int, httpx.Headers, bytes]:
        headers = {"content-type": "application/json"} if content is not None else {}
        data = bytearray()
        try:
            async with (
                asyncio.timeout(timeout_s),
                client.stream(
                    method, self.url + path, content=content, headers=headers
                ) as response,
            ):
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > _MAX_BYTES:
                        raise Unavailable(f"the answer is larger than {_MAX_BYTES >> 20} MiB")
            status = response.status_code
        except TimeoutError:
            raise Unavailable(f"no answer within {timeout_s:.0f} s", down=True) from None
        except httpx.ConnectError as error:
            raise Unavailable(
                f"cannot connect: {reason(error)}", down=True, not_begun=True
            ) from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise Unavailable(f"{type(error).__name__} {error}".strip()) from error
        if status in _NO_ENTRY:
            raise ConfigError(
                f"{self.name} answers HTTP {status}: set CODING_SANDBOX_TOKEN to the token it was "
                "started with"
            )
        return status, response.headers, bytes(data)


def parsed(data: bytes) -> wire.RunCodeResponse:
    """Return an answer of /run_code.

    Raises:
        Unavailable: it is none of a working SandboxFusion.
    """
    try:
        return wire.RunCodeResponse.model_validate(json.loads(data))
    except ValueError as error:
        raise Unavailable(wire.describe(data)) from error


def _tail(data: bytes) -> str:
    return " ".join(data[-300:].decode("utf-8", "replace").split())[-120:]


def _retry_after_s(headers: httpx.Headers) -> float | None:
    """Return the seconds of `Retry-After`, at most the longest rest of a broken server."""
    seconds = retry_after_s(headers)
    return None if seconds is None else min(seconds, _LONGEST_COOLING_S)
