"""Which servers there are: by their URLs, by a DNS name's addresses, or by the lines of a file.

http://host:8080            one server
dns+http://judges:8080      each address of that name, such as of a headless Service of Kubernetes
file:/shared/judges.txt     each line of that file
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from coding_model_project.errors import ConfigError
from coding_model_project.http import Service, reason

KEY = "coding.sandbox.urls"
PREFIXES = ("http://", "https://", "dns+http://", "file:")
"""How each entry begins."""

_FILE, _DNS = "file:", "dns+"


class Source(Protocol):
    """What names servers."""

    @property
    def changes(self) -> bool:
        """Whether another look may find other servers."""
        ...

    async def urls(self) -> tuple[str, ...]:
        """Return the base addresses of today's servers, at least one.

        Raises:
            OSError: it cannot be read now.
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
        return tuple(_base(self.url.copy_with(host=address)) for address in addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlFile:
    """A file with a server's URL in each line; lines may be empty or comments after a #."""

    path: Path
    changes: bool = True

    async def urls(self) -> tuple[str, ...]:
        text = await asyncio.to_thread(self.path.read_text, "utf-8", "replace")
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        found = tuple(server_url(line) for line in lines if line)
        if not found:  # it may be about to be written
            raise OSError("no server in it")
        return found


def source(entry: str) -> Source:
    """Return what an entry of `coding.sandbox.urls` names.

    Raises:
        ConfigError: it is none of the kinds there are.
    """
    entry = str(entry).strip()
    if entry.startswith(_FILE):
        path = Path(entry.removeprefix(_FILE).removeprefix("//"))
        if not path.is_file():
            raise ConfigError(f"{KEY}: {entry}: no such file; write a server's URL in each line")
        return UrlFile(path=path)
    if entry.startswith(_DNS):
        url = httpx.URL(server_url(entry.removeprefix(_DNS)))
        if url.scheme != "http":  # a certificate is a name's, not an address's
            raise ConfigError(f"{KEY}: {entry!r}: only dns+http:// is possible; list https servers")
        return DnsName(url=url)
    return Listed(url=server_url(entry))


def server_url(url: str) -> str:
    """Return a server's base address, without what users add by habit.

    Raises:
        ConfigError: it is no HTTP address.
    """
    base = str(url).strip().rstrip("/").removesuffix("/run_code")
    try:
        parsed = httpx.URL(base)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{KEY}: {url!r}: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(
            f"{KEY}: {url!r} is not an address like http://host:8080, dns+http://name:8080 or "
            "file:/path"
        )
    return base


class Discovery:
    """All sources of a configuration.

    Args:
        entries: of `coding.sandbox.urls`.

    Raises:
        ConfigError: there is none, or one is no address.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        if not entries:
            raise ConfigError(f"{KEY} is empty: name a SandboxFusion server")
        self._sources = [
            (str(entry), Service("list of servers", str(entry)), source(entry)) for entry in entries
        ]
        self._last: dict[Source, tuple[str, ...]] = {}
        self.failures: dict[str, str] = {}
        """Why an entry could not be read at the last look."""

    @property
    def changes(self) -> bool:
        """Whether servers may come and go."""
        return any(one.changes for *_, one in self._sources)

    async def look(self) -> tuple[str, ...]:
        """Return the servers that there are, in the sources' order.

        A source that cannot be read, or names none, is announced and keeps the servers it last had: an
        outage of a name server is no reason to leave judges that work.
        """
        for entry, service, one in self._sources:
            try:
                self._last[one] = await one.urls()
                self.failures.pop(entry, None)
                service.worked()
            except (OSError, ConfigError) as error:
                self.failures[entry] = reason(error)
                service.failed(error, "the servers that it last named are kept")
        return _unique(url for *_, one in self._sources for url in self._last.get(one, ()))


def _unique(urls: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(urls))


def _base(url: httpx.URL) -> str:
    return str(url).rstrip("/")
