"""Local paths for URLs: copies in a cache, copies of many objects that follow them, and uploaded results.

`on_disk`, `folder_on_disk`: a remote object or folder is copied into a cache, once per version:
    CACHE/KEY/NAME      a file, or a folder with its content; KEY is a hash of the URL and the versions
    CACHE/KEY.lock      held during the fetch of KEY: other processes wait, then use the copy
    CACHE/KEY.partial/  an incomplete fetch; renamed to KEY when it is complete
`copy_changed`: later calls fetch only what has changed
`published`: results are made in a temporary folder, and uploaded when complete
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coding_model_project.contained import below, open_lock
from coding_model_project.errors import CodingModelError, ConfigError, DownloadError, StorageError
from coding_model_project.redaction import redacted
from coding_model_project.storage.object_store import Entry, ObjectStore, as_url, is_url
from coding_model_project.storage.store_errors import explained, explaining, has_no_words

if TYPE_CHECKING:
    from fsspec import Callback


CACHE_VARIABLE = "CODING_DATA_CACHE"
_LARGE_BYTES = 64 << 20
"""Minimum size of a download that shows a progress bar."""
_MB = 1_000_000


def cache_dir() -> Path:
    """Return the folder for copies of remote files: $CODING_DATA_CACHE, else the user's cache folder."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "coding_model_project" / "data"


def on_disk(path: str | Path) -> Path:
    """Return the path itself, or a local copy of the object behind a URL.

    Raises:
        ConfigError: it cannot be read, for a reason that the user can correct.
        DownloadError: the store does not answer.
    """
    return _fetched(as_url(path), is_folder=False) if is_url(path) else Path(path)


def folder_on_disk(path: str | Path) -> str:
    """Return the path itself (a model's folder or hub name), or a local copy of the folder behind a URL.

    Raises:
        ConfigError: it cannot be read, for a reason that the user can correct.
        DownloadError: the store does not answer.
    """
    return str(_fetched(as_url(path).rstrip("/"), is_folder=True)) if is_url(path) else str(path)


def _fetched(url: str, *, is_folder: bool) -> Path:
    store = ObjectStore(url, "object store")
    try:
        entries = _listed(store, is_folder=is_folder)
        versions = {path: (entry.bytes, entry.version) for path, entry in entries.items()}
        key = hashlib.sha256(f"{store.url} {sorted(versions.items())}".encode()).hexdigest()[:16]
        folder = cache_dir() / key
        copy = folder / store.name
        if not folder.exists():
            with locked(folder.with_suffix(".lock"), store.url):
                if not folder.exists():
                    partial = _fetch(store, entries, folder, copy.name)
                    if _listed(store, is_folder=is_folder) != entries:
                        raise DownloadError(f"{url}: it changed while it was fetched; start again")
                    partial.rename(folder)
    except CodingModelError:
        raise
    except Exception as error:  # each protocol's library has exceptions of its own
        if (
            isinstance(error, OSError)
            and error.filename
            and str(cache_dir()) in str(error.filename)
        ):
            raise StorageError(
                f"{cache_dir()}: cannot be written ({error.strerror}); make room, or set "
                f"{CACHE_VARIABLE} to another folder"
            ) from error
        raise explained(_detailed(store, error), url) from error
    return copy


def _listed(store: ObjectStore, *, is_folder: bool) -> Mapping[str, Entry]:
    if not is_folder:
        return {"": store.entry()}
    found = {path: entry for path, entry in store.entries().items() if path}
    if not found:
        raise ConfigError(f"{store.url}: no such folder; nothing lies below this URL")
    return found


def _detailed(store: ObjectStore, error: Exception) -> Exception:
    """Return the store's full error if the answer to a HEAD request had no body."""
    if not has_no_words(error):
        return error
    try:
        store.files.ls(store.root, detail=False, refresh=True)
    except Exception as detailed:  # noqa: BLE001 - as above
        return detailed
    return error


def _fetch(store: ObjectStore, entries: Mapping[str, Entry], folder: Path, name: str) -> Path:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with _bar(store.url, sum(entry.bytes for entry in entries.values())) as callback:
        for path, entry in entries.items():
            target = below(partial / name, path) if path else partial / name
            target.parent.mkdir(parents=True, exist_ok=True)
            store.get(path, target, callback)
            if (arrived := target.stat().st_size) != entry.bytes and entry.bytes:
                raise OSError(f"{path or name}: {arrived:,} of {entry.bytes:,} bytes arrived")
    return partial


@contextmanager
def _bar(url: str, size: int) -> Iterator[Callback | None]:
    """Show the progress of a large download, in megabytes."""
    if size < _LARGE_BYTES:
        yield None
        return
    from fsspec import Callback

    from coding_model_project.progress import bars

    with bars("{task.description}", "MB") as progress:
        task = progress.add_task(url, total=size // _MB)

        class Bytes(Callback):
            def call(self, hook_name: str | None = None, **kwargs: object) -> None:
                progress.update(task, completed=self.value // _MB)

        yield Bytes()


@contextmanager
def locked(path: Path, url: str) -> Iterator[None]:
    """Hold the lock file, so that one process at a time fetches the URL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = open_lock(path, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"waiting for another process that reads {url}\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


_UNFINISHED = ".partial"
_SAME_TIME_S = 0.01
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The result of a call."""

    copied: int
    kept: int
    """Number of files that were up to date."""


def copy_changed(
    store: ObjectStore,
    entries: Mapping[str, Entry],
    folder: Path,
) -> Copied:
    """Copy objects whose copies differ in size or time; each file appears whole.

    An object that has vanished is left for the next call.

    Args:
        entries: the objects, by their path below the store's URL and the folder.
    """
    n_copied = n_kept = 0
    for path, entry in entries.items():
        if not path or path.endswith(_UNFINISHED):
            continue
        target = below(folder, path)
        if _is_same(target, entry):
            n_kept += 1
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = below(folder, path + _UNFINISHED)
        try:
            store.get(path, partial)
        except FileNotFoundError:
            continue
        if not _extended(target, partial):
            partial.replace(target)
        # The source's own time, so that clocks need not agree, and a change during the copy is noticed.
        os.utime(target, (entry.modified, entry.modified))
        n_copied += 1
    return Copied(copied=n_copied, kept=n_kept)


def _is_same(target: Path, entry: Entry) -> bool:
    """Return whether a copy has the size and time of its original."""
    if not target.is_file() or not entry.modified:
        return False
    here = target.stat()
    return here.st_size == entry.bytes and abs(here.st_mtime - entry.modified) < _SAME_TIME_S


def _extended(target: Path, grown: Path) -> bool:
    """Append what a file has grown by, if it only grew: readers follow the end of the same file."""
    if not target.exists() or target.stat().st_size > grown.stat().st_size:
        return False
    with target.open("r+b") as file, grown.open("rb") as new:
        while before := file.read(_CHUNK_BYTES):
            if new.read(len(before)) != before:
                return False
        while more := new.read(_CHUNK_BYTES):
            file.write(more)
    grown.unlink()
    return True


_LAST = ("manifest.json", "config.json")
"""Files that mark a folder as complete for its readers; uploaded last."""


@contextmanager
def published(out: Path) -> Iterator[Path]:
    """Yield a local path in place of a URL, then upload all files written at or beside it.

    A URL that cannot be written raises an error before the block runs. If the upload fails, the files
    stay in the temporary folder, whose path is printed.

    Raises:
        ConfigError: it cannot be written, for a reason that the user can correct.
        DownloadError: the store does not answer.
    """
    parent, _, name = as_url(out).rstrip("/").rpartition("/")
    store = ObjectStore(parent, "object store")
    with explaining(as_url(out)):
        store.check_writable()
    folder = Path(tempfile.mkdtemp(prefix="coding_out_"))
    try:
        yield below(folder, name)
    except BaseException:
        shutil.rmtree(folder)
        raise
    files = [path for path in folder.rglob("*") if path.is_file()]
    try:
        with explaining(as_url(out)):
            for path in sorted(files, key=lambda path: (path.name in _LAST, path)):
                store.put(path, path.relative_to(folder).as_posix(), path.stat().st_size)
    except BaseException:
        sys.stderr.write(f"not uploaded; the results are in {folder}\n")
        raise
    shutil.rmtree(folder)
    sys.stderr.write(f"uploaded to {redacted(as_url(out))}\n")
