"""Operations on the objects below a URL, with retries; each outage is announced once."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from coding_model_project.contained import file_name
from coding_model_project.errors import ConfigError
from coding_model_project.http import Service, announced
from coding_model_project.redaction import redacted
from coding_model_project.storage.store_errors import is_transport_fault, missing_library

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem, Callback

_ATTEMPTS = 6
_LONGEST_S = 300.0
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "created", "LastModified")
"""Fields that identify an object's version in the various protocols, best first."""
_TIMES = ("mtime", "LastModified", "updated", "created")
"""Fields with an object's time of the last change; `created` if there is no other."""
_URL = re.compile(r"^([a-z][a-z0-9+.-]*):/")
_T = TypeVar("_T")


def is_url(path: str | Path) -> bool:
    """Return whether a path is one of fsspec's URLs (s3://, gs://, https://, memory://, ...)."""
    return _URL.match(str(path)) is not None


def as_url(path: str | Path) -> str:
    """Return the original URL, also from a `Path` made of it, which drops a slash."""
    return str(path) if "://" in str(path) else _URL.sub(r"\1://", str(path), count=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An object in a listing."""

    bytes: int
    version: str
    modified: float = field(default=0.0, compare=False)
    """Seconds since the epoch, by the store's clock; 0 if unknown."""


def _retried(operation: Callable[..., _T]) -> Callable[..., _T]:
    """Retry an operation after transport faults, up to its store's `attempts`."""

    @functools.wraps(operation)
    def call(store: ObjectStore, *args: Any) -> _T:
        import stamina

        if store.attempts == 1:
            return operation(store, *args)
        decorate = stamina.retry(
            on=is_transport_fault, attempts=store.attempts, timeout=_LONGEST_S, wait_max=30.0
        )
        with announced(store.service, attempts=store.attempts):
            result = decorate(operation)(store, *args)
        store.service.worked()
        return result

    return call


class ObjectStore:
    """The objects below a URL, by their path relative to it.

    Operations raise the errors of the protocol's library; `store_errors.explained` makes them one line.
    """

    def __init__(self, url: str, kind: str, *, attempts: int = _ATTEMPTS) -> None:
        """Open the store without any request.

        Args:
            kind: the store's name in messages about outages, e.g. "checkpoint store".
            attempts: the maximum number of attempts of one operation, within 5 minutes.

        Raises:
            ConfigError: the protocol is unknown, or its library is not installed.
        """
        import fsspec
        from fsspec.utils import get_protocol

        self._is_local = get_protocol(url) in ("file", "local")
        options = {"auto_mkdir": True} if self._is_local else {}
        try:
            self.files: AbstractFileSystem
            self.files, self.root = fsspec.url_to_fs(url, **options)
        except ImportError as error:
            raise missing_library(url, error) from error
        except ValueError as error:
            raise ConfigError(f"{url}: {error}") from error
        self.url = redacted(url.rstrip("/"))
        """The URL for messages; `root` and `files` are what requests use."""
        self.attempts = attempts
        self.service = Service(kind, self.url)

    @property
    def name(self) -> str:
        """The URL's last part, for a local copy: without a query, which may have a token."""
        return file_name(self.root.partition("?")[0].rstrip("/").rpartition("/")[2] or "root")

    def _at(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}" if path else self.root

    @_retried
    def entries(self) -> Mapping[str, Entry]:
        """Return all objects below the URL, at any depth, by path; the URL's own object has path ""."""
        self.files.invalidate_cache()
        found = cast(dict[str, dict[str, Any]], self.files.find(self.root, detail=True))
        return {
            name.removeprefix(self.root).lstrip("/"): entry_of(info)
            for name, info in sorted(found.items())
            if info.get("type") == "file" and not name.endswith("/")
        }

    @_retried
    def entry(self, path: str = "") -> Entry:
        self.files.invalidate_cache()
        return entry_of(self.files.info(self._at(path)))

    @_retried
    def read(self, path: str) -> bytes | None:
        """Return an object's content; None if it does not exist."""
        try:
            return cast(bytes, self.files.cat_file(self._at(path)))
        except FileNotFoundError:
            return None

    @_retried
    def write(self, path: str, content: bytes) -> None:
        self.files.pipe_file(self._at(path), content)

    def check_writable(self) -> None:
        """Write an object and delete it, to detect a missing permission before any work."""
        probe = f".writable-{uuid.uuid4().hex[:8]}"
        self.write(probe, b"")
        self.remove(probe)

    @_retried
    def put(self, source: Path, path: str, size: int) -> None:
        """Upload a file, and check that all of it arrived."""
        # Other stores show an object once it is complete; a folder shows what has been written of it.
        partial = ".partial" if self._is_local else ""
        self.files.put_file(str(source), self._at(path) + partial)
        if partial:
            self.files.mv(self._at(path) + partial, self._at(path))
        self.files.invalidate_cache()
        arrived = self.files.size(self._at(path))
        if arrived != size:
            raise OSError(f"{self._at(path)}: {arrived} of {size:,} bytes arrived")

    @_retried
    def get(self, path: str, target: Path, callback: Callback | None = None) -> None:
        """Download an object into a file."""
        more: dict[str, Any] = {} if callback is None else {"callback": callback}
        self.files.get_file(self._at(path), str(target), **more)

    @_retried
    def remove(self, path: str) -> None:
        """Delete an object, if it exists."""
        with suppress(FileNotFoundError):
            self.files.rm_file(self._at(path))

    @_retried
    def remove_below(self, path: str) -> None:
        """Delete all objects below a path."""
        with suppress(FileNotFoundError):
            self.files.rm(self._at(path), recursive=True)


def entry_of(info: Mapping[str, Any]) -> Entry:
    """Convert fsspec's description of an object into an `Entry`."""
    version = next((str(info[name]) for name in _VERSIONS if info.get(name)), "")
    at = next((info[name] for name in _TIMES if info.get(name)), 0.0)
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return Entry(
        bytes=info.get("size") or 0,
        version=version.strip('"'),
        modified=at.timestamp() if isinstance(at, datetime) else float(at),
    )
