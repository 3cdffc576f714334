"""Several servers as one: choice of a server, the limit of concurrent requests, and retries.

It is the only limiter and the only retry policy of a client.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import stamina

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.http import announced, bearer
from coding_model_project.sandbox.fusion import wire
from coding_model_project.sandbox.fusion.endpoint import Endpoint, NotSandboxFusion, Unavailable
from coding_model_project.sandbox.fusion.members import Discovery, Members

_FIRST_WAIT_S, _LONGEST_WAIT_S, _JITTER_S = 0.2, 10.0, 1.0
_NEXT_SERVER_S = 0.05
_WATCH_S, _MISSED_PINGS = 5.0, 3
"""Interval of pings to a server with a request in flight, and missed pings after which it is given up."""

T = TypeVar("T")
Accept = Callable[[bytes], T]
"""Converts an answer to the result; raises Unavailable if the answer is the server's failure."""

Send = Callable[[str, wire.Body, float], Awaitable[bytes]]
"""Sends a body to a path, for code that takes at most so many wall seconds, and returns the answer."""

Probe = Callable[[Send], Awaitable[None]]
"""Probes a server through the given function; raises ConfigError for an unusable one."""


class Fleet:
    """SandboxFusion servers that are used as one.

    Args:
        discovery: the source of servers.
        max_concurrency: maximum concurrent requests of this client to all servers.
        timeout_s: seconds that an answer may take beyond the limits of the programs.
        retry_s: seconds after which a request without an answer fails.
        refresh_s: seconds between updates of the list of servers.
        ping_s: seconds within which a server answers a ping.
        probe: called for each server before its first use.
        transport: replaces the HTTP transport in tests.
    """

    def __init__(
        self,
        discovery: Discovery,
        *,
        max_concurrency: int,
        timeout_s: float,
        retry_s: float,
        refresh_s: float,
        ping_s: float,
        token: str | None,
        probe: Probe,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.members = Members(
            discovery,
            self._examine,
            wait_s=retry_s,
            refresh_s=refresh_s,
        )
        self._limit = asyncio.Semaphore(max_concurrency)
        self._timeout_s, self._retry_s = timeout_s, max(retry_s, 0.001)
        self._probe, self._ping_s = probe, ping_s
        self._failing_since: float | None = None
        self._failed_at = -math.inf
        self._client = httpx.AsyncClient(
            headers=bearer(token),
            timeout=None,  # each exchange has a time-out as a whole
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=max_concurrency),
            transport=transport,
            trust_env=False,
        )

    async def close(self) -> None:
        await self.members.close()
        await self._client.aclose()

    async def run(
        self,
        path: str,
        body: wire.Body,
        run_s: float,
        accept: Accept[T],
        *,
        once_begun: bool = False,
    ) -> T:
        """Run code on a server; retry on another one if it fails.

        After an outage of all servers for `retry_s`, each further request is tried only once: an outage
        costs that time once, not once per request in the queue.

        Args:
            run_s: wall seconds that the code itself may take.
            once_begun: fail, instead of retrying, if a server fails that may have started the request.

        Raises:
            Unavailable: a server failed that may have started the request (`once_begun`).
            SandboxError: no server answered for `retry_s`, or one rejected the request.
            ConfigError: a server is not a SandboxFusion server, or rejects the token.
        """

        def backoff(error: Exception) -> bool | float:
            failed = isinstance(error, Unavailable) and once_begun and not error.not_begun
            return not failed and self._backoff(error)

        async with self._limit:
            try:
                with announced(None, retry_s=self._retry_s):
                    async for attempt in stamina.retry_context(
                        on=backoff,
                        attempts=1 if self._gave_up() else None,
                        timeout=self._retry_s,
                        wait_initial=_FIRST_WAIT_S,
                        wait_max=_LONGEST_WAIT_S,
                        wait_jitter=_JITTER_S,
                    ):
                        with attempt:
                            return await self._once(path, body, run_s, accept)
            except Unavailable as error:
                if once_begun and not error.not_begun:
                    raise
                raise SandboxError(f"{error}; retried for {self._retry_s:.0f} s") from error
        raise AssertionError("unreachable: the loop ends by an answer or an exception")

    def _gave_up(self) -> bool:
        now = time.monotonic()
        lasting = self._failing_since is not None and now - self._failing_since > self._retry_s
        return lasting and now - self._failed_at <= self._retry_s

    def _failed(self) -> None:
        """Record a failure, and the start of its outage: failures less than `retry_s` apart are one."""
        now = time.monotonic()
        if self._failing_since is None or now - self._failed_at > self._retry_s:
            self._failing_since = now
        self._failed_at = now

    def _backoff(self, error: Exception) -> bool | float:
        if not isinstance(error, Unavailable):
            return False
        if not self.members.all_rest():
            if error.retry_after_s is None and not self.members.several:
                return True
            return _NEXT_SERVER_S * (1 + random.random())
        if error.retry_after_s is not None:
            return error.retry_after_s + random.random() * (0.1 + error.retry_after_s)
        return True

    async def _once(self, path: str, body: wire.Body, run_s: float, accept: Accept[T]) -> T:
        try:
            endpoint = self.members.choose()
        except Unavailable:
            self._failed()
            raise
        endpoint.in_flight += 1
        try:
            return await self._at(endpoint, path, body, run_s, accept)
        finally:
            endpoint.in_flight -= 1

    async def _at(
        self, endpoint: Endpoint, path: str, body: wire.Body, run_s: float, accept: Accept[T]
    ) -> T:
        """Send one request to one server, and record that server's health."""
        sent = False
        try:
            await self._make_sure(endpoint)
            sent = True
            result = accept(await self._send(endpoint, path, body, run_s))
        except Unavailable as error:
            endpoint.failed(error)
            self._failed()
            named = f"{endpoint.name}: {error}"
            raise Unavailable(
                named,
                retry_after_s=error.retry_after_s,
                not_begun=error.not_begun or not sent,
                service=endpoint.service,
            ) from error
        endpoint.worked()
        self._failing_since = None
        return result

    async def _make_sure(self, endpoint: Endpoint) -> None:
        """Ping a server that failed, and examine a new one.

        Raises:
            Unavailable: it cannot be used now; another one may be.
        """
        if endpoint.known and endpoint.failures:
            await endpoint.ping(self._client, self._ping_s)
        if not endpoint.known:
            async with endpoint.checking:
                if not endpoint.known:
                    try:
                        await self._examine(endpoint)
                    except ConfigError as error:
                        raise Unavailable(str(error), down=True) from error

    async def _send(self, endpoint: Endpoint, path: str, body: wire.Body, run_s: float) -> bytes:
        """Send one request to one server; give up early if the server answers no pings meanwhile."""
        request = asyncio.ensure_future(
            endpoint.post(self._client, path, body, run_s + self._timeout_s)
        )
        missed = 0
        try:
            while not (await asyncio.wait({request}, timeout=_WATCH_S))[0]:
                try:
                    await endpoint.ping(self._client, self._ping_s)
                    missed = 0
                except Unavailable as error:
                    missed += 1
                    if missed == _MISSED_PINGS:
                        raise Unavailable(f"it hangs: a ping gets {error}", down=True) from error
            return request.result()
        finally:
            request.cancel()

    async def _examine(self, endpoint: Endpoint) -> None:
        try:
            await endpoint.ping(self._client, self._ping_s)
        except NotSandboxFusion as error:
            raise ConfigError(
                f"coding.sandbox.urls: {endpoint.name} is not a SandboxFusion server: {error}"
            ) from error

        async def send(path: str, body: wire.Body, run_s: float) -> bytes:
            return await self._send(endpoint, path, body, run_s)

        await self._probe(send)
        endpoint.known = True
