"""The servers of a fleet: how they are found, and those in use, new ones, and those that leave.

http://host:8080            one server
dns+http://judges:8080      each address of that name, such as of a headless Service of Kubernetes
file:/shared/judges.txt     each line of that file
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
import stamina

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.http import Service, announced, reason
from coding_model_project.redaction import redacted
from coding_model_project.sandbox.fusion.endpoint import Endpoint, Unavailable

KEY = "coding.sandbox.urls"
PREFIXES = ("http://", "https://", "dns+http://", "file:")
"""Prefixes of valid entries."""

_FILE, _DNS = "file:", "dns+"


class Source(Protocol):
    """A source of servers' addresses."""

    @property
    def changes(self) -> bool:
        """Return whether its servers may change."""
        ...

    async def urls(self) -> tuple[str, ...]:
        """Return the base addresses of the current servers, at least one.

        Raises:
            OSError: the source cannot be read now.
            ConfigError: it holds something else.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A server's URL."""

    url: str
    changes: bool = False

    async def urls(self) -> tuple[str, ...]:
        return (self.url,)


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsName:
    """A name whose addresses are servers."""

    url: httpx.URL
    changes: bool = True

    async def urls(self) -> tuple[str, ...]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            self.url.host, self.url.port or 80, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        addresses = sorted({str(address[0]) for *_, address in found})
        return tuple(str(self.url.copy_with(host=address)).rstrip("/") for address in addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlFile:
    """A file with a server's URL in each line; lines may be empty or comments after a #."""

    path: Path
    changes: bool = True

    async def urls(self) -> tuple[str, ...]:
        text = await asyncio.to_thread(self.path.read_text, "utf-8", "replace")
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        found = tuple(server_url(line) for line in lines if line)
        if not found:  # it may be in the middle of being rewritten
            raise OSError("the file names no server")
        return found


def source(entry: str) -> Source:
    """Return the source of an entry of `coding.sandbox.urls`.

    Raises:
        ConfigError: the entry has no known form.
    """
    entry = str(entry).strip()
    shown = redacted(entry)
    if entry.startswith(_FILE):
        path = Path(entry.removeprefix(_FILE).removeprefix("//"))
        if not path.is_file():
            raise ConfigError(f"{KEY}: {entry}: no such file; write one server URL per line")
        return UrlFile(path=path)
    if entry.startswith(_DNS):
        url = httpx.URL(server_url(entry.removeprefix(_DNS)))
        if url.scheme != "http":  # certificates are for names, not addresses
            raise ConfigError(
                f"{KEY}: {shown!r}: only dns+http:// is supported; list https servers one by one"
            )
        try:
            url.host.encode("idna")  # as getaddrinfo does
        except UnicodeError as error:
            raise ConfigError(f"{KEY}: {shown!r}: {url.host!r} is no name of a host") from error
        return DnsName(url=url)
    return Listed(url=server_url(entry))


def server_url(url: str) -> str:
    """Return a server's base address, without a trailing slash or /run_code.

    Raises:
        ConfigError: it is not an HTTP address.
    """
    shown = redacted(str(url))
    base = str(url).strip().rstrip("/").removesuffix("/run_code")
    try:
        parsed = httpx.URL(base)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{KEY}: {shown!r}: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(
            f"{KEY}: {shown!r} is not an address like http://host:8080, dns+http://name:8080 or "
            "file:/path"
        )
    return base


class Discovery:
    """All sources of a configuration.

    Args:
        entries: the entries of `coding.sandbox.urls`, or other sources.

    Raises:
        ConfigError: there are none, or one is not an address.
    """

    def __init__(self, entries: Sequence[str | Source]) -> None:
        if not entries:
            raise ConfigError(f"{KEY}=[]: at least one server is needed: {KEY}=[http://host:8080]")
        self._sources = [
            (
                str(entry),
                Service("list of servers", str(entry)),
                source(entry) if isinstance(entry, str) else entry,
            )
            for entry in entries
        ]
        self._last: dict[Source, tuple[str, ...]] = {}
        self.failures: dict[str, str] = {}
        """Reasons, by entry, why it could not be read the last time."""

    @property
    def changes(self) -> bool:
        """Return whether the servers may change."""
        return any(one.changes for *_, one in self._sources)

    async def look(self) -> tuple[str, ...]:
        """Return the current servers, in the sources' order.

        A source that cannot be read, or names no server, is reported and keeps its last servers: an
        outage of a name server is no reason to stop using working judges.
        """
        for entry, service, one in self._sources:
            try:
                self._last[one] = await one.urls()
                self.failures.pop(entry, None)
                service.worked()
            except (OSError, ConfigError) as error:
                self.failures[entry] = reason(error)
                service.failed(error, "the servers that it last named are kept")
        urls = (url for *_, one in self._sources for url in self._last.get(one, ()))
        return tuple(dict.fromkeys(urls))


_START_S = 20.0
"""Most seconds to wait for a server that is starting."""

_REFUSED_S = 30.0
"""Seconds after which a new server that was refused is examined again."""

_LOOK_S = 1.0
"""Seconds between looks for a first server."""


class Members:
    """The servers that may get requests.

    Servers of the first look are used as soon as they can be. A server that appears later gets no program
    before it is examined. A server that is no longer listed gets no more programs, and those running
    there end as they may.

    Args:
        examine: returns if a server can be used; raises Unavailable for one that is down now, ConfigError
            for one that must not be used.
        wait_s: seconds to wait for servers that are starting, at most 20.
        refresh_s: seconds between updates of the list of servers.
    """

    def __init__(
        self,
        discovery: Discovery,
        examine: Callable[[Endpoint], Awaitable[None]],
        *,
        wait_s: float,
        refresh_s: float,
    ) -> None:
        self._discovery, self._examine = discovery, examine
        self._wait_s, self._refresh_s = min(_START_S, wait_s), refresh_s
        self._used: list[Endpoint] = []
        self._coming: dict[str, asyncio.Task[None]] = {}
        self._following: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Look for servers and examine all; those that are down now are examined before their first use.

        Raises:
            ConfigError: an address is not a SandboxFusion server's, or servers differ.
            SandboxError: no server can be reached.
        """
        urls = await self._first_urls()
        self._used = [Endpoint(url) for url in urls]
        looks = [asyncio.ensure_future(self._first_look(e)) for e in self._used]
        try:
            found = await asyncio.gather(*looks)
        finally:
            for look in looks:
                look.cancel()
        reasons = [reason for reason in found if reason is not None]
        if len(reasons) == len(self._used):
            raise SandboxError(f"no SandboxFusion server can be used: {'; '.join(reasons)}")
        if self._discovery.changes:
            self._following = asyncio.ensure_future(self._follow())

    async def close(self) -> None:
        """Stop looking for servers."""
        tasks = [*self._coming.values(), *([self._following] if self._following else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def places(self, default: int) -> int:
        """Return the number of requests that the servers that do not rest run at once.

        Args:
            default: that of a server that does not say so, and of all if all rest.
        """
        awake = [endpoint for endpoint in self._used if not endpoint.rests()]
        return sum(endpoint.places or default for endpoint in awake) or default

    @property
    def several(self) -> bool:
        """Return whether there are several servers, so that a failed request can go to another."""
        return len(self._used) > 1

    def all_rest(self) -> bool:
        return all(endpoint.rests() for endpoint in self._used)

    def choose(self) -> Endpoint:
        """Return the least busy server that does not rest, or else the one whose rest ends first.

        Raises:
            Unavailable: all have left.
        """
        awake = [endpoint for endpoint in self._used if not endpoint.rests()]
        if awake:
            return min(
                awake, key=lambda one: ((one.in_flight + 1) / (one.places or 1), random.random())
            )
        if not self._used:
            raise Unavailable("no sandbox server is left", down=True, not_begun=True)
        return min(self._used, key=lambda endpoint: endpoint.rests_until)

    # ── the start ─────────────────────────────────────────────────────────────────────────────────

    async def _first_urls(self) -> tuple[str, ...]:
        """Return the first servers; raise SandboxError if no source names one in time."""
        until = time.monotonic() + self._wait_s
        while not (urls := await self._discovery.look()):
            if time.monotonic() > until:
                why = "; ".join(f"{entry}: {w}" for entry, w in self._discovery.failures.items())
                raise SandboxError(f"coding.sandbox.urls names no server: {why}")
            await asyncio.sleep(_LOOK_S)
        return urls

    async def _first_look(self, endpoint: Endpoint) -> str | None:
        """Examine a server; return why it cannot be used now, or None if it can."""
        try:
            with announced(endpoint.service, retry_s=self._wait_s):
                async for attempt in stamina.retry_context(
                    on=Unavailable,
                    attempts=None if self._wait_s else 1,
                    timeout=self._wait_s or None,
                    wait_max=2.0,
                ):
                    with attempt:
                        await self._examine(endpoint)
            endpoint.service.worked()
        except Unavailable as error:
            endpoint.failed(Unavailable(str(error), down=True))
            return f"{endpoint.name}: {error}"
        return None

    # ── coming and going ──────────────────────────────────────────────────────────────────────────

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s)
            self._update(await self._discovery.look())

    def _update(self, urls: tuple[str, ...]) -> None:
        for endpoint in [one for one in self._used if one.url not in urls]:
            self._used.remove(endpoint)
            endpoint.service.note(f"is no longer listed; {len(self._used)} remain")
        for url in [url for url in self._coming if url not in urls]:
            self._coming.pop(url).cancel()
        known = {endpoint.url for endpoint in self._used} | set(self._coming)
        for url in urls:
            if url not in known:
                self._coming[url] = asyncio.ensure_future(self._admit(Endpoint(url)))

    async def _admit(self, endpoint: Endpoint) -> None:
        """Examine a new server until it can be used, then use it."""
        refused = ""
        while True:
            try:
                await self._examine(endpoint)
                break
            except Unavailable as error:
                pause_s = self._refresh_s
                endpoint.service.failed(error, f"it is retried every {pause_s:g} s")
            except (ConfigError, SandboxError) as error:
                pause_s = _REFUSED_S
                if str(error) != refused:
                    refused = str(error)
                    endpoint.service.note(f"is new, and not used: {refused}")
            await asyncio.sleep(pause_s)
        self._used.append(endpoint)
        del self._coming[endpoint.url]
        endpoint.service.worked()
        endpoint.service.note(f"is new, and used from now on; there are {len(self._used)}")
