"""Discovery of servers: by their URLs, by a DNS name's addresses, or by the lines of a file.

http://host:8080            one server
dns+http://judges:8080      each address of that name, such as of a headless Service of Kubernetes
file:/shared/judges.txt     each line of that file
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from coding_model_project.errors import ConfigError
from coding_model_project.http import Service, reason
from coding_model_project.redaction import redacted

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
