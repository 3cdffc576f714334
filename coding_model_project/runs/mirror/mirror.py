"""Upload of a run's folder during the run: changed files, every N seconds, without checkpoints."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from coding_model_project.atomic import write_text
from coding_model_project.contained import leaves
from coding_model_project.errors import CodingModelError, ConfigError
from coding_model_project.runs.mirror.masking import masked
from coding_model_project.runs.mirror.mirror_index import (
    INDEX,
    NOT_MIRRORED,
    PART_BYTES,
    MirroredFile,
    MirrorIndex,
    digest,
    object_names,
)
from coding_model_project.storage.object_store import ObjectStore
from coding_model_project.storage.store_errors import explained

_UNWANTED = (".partial", ".safetensors", ".pt", ".bin")
"""Suffixes of incomplete files and weights."""
_GROWS = (".jsonl", ".log")
"""Suffixes of append-only files. Copies end at a complete line, unless the run has ended."""
_CLOSE_S = 600.0
"""Seconds that the end of a run waits for the mirror, however much is left to upload."""
_LAST_TRY_S = 60.0
"""Seconds during which the last round is repeated if it fails."""
_PAUSE_S = 5.0
_KEY = "coding.mirror.url"

Say = Callable[[str], None]
Stamp = tuple[int, int, int]


class TakenOverError(ConfigError):
    """Another process has resumed the run, and mirrors it."""


class Mirror:
    """Copies of a run's files below a URL, uploaded in rounds.

    A round uploads each changed file from its first changed part on, and then the index. Of an
    append-only file, only the last complete part and what follows it are read again.
    """

    def __init__(self, folder: Path, url: str, every_s: float, secrets: tuple[bytes, ...]) -> None:
        """Open the mirror.

        Args:
            secrets: values to mask in every file.

        Raises:
            ConfigError: the URL cannot be used, or another run is mirrored there.
            DownloadError: the store does not answer.
        """
        if not 1 <= every_s <= 60:
            raise ConfigError(
                f"coding.mirror.every_s={every_s:g}: set it to 1 to 60 seconds; readers consider a run "
                "dead after a longer silence"
            )
        self._folder = folder
        self._store = ObjectStore(url, "mirror", attempts=3)
        self._secrets = secrets
        self._overlap = max(map(len, secrets), default=1) - 1
        self._stamps: dict[str, Stamp] = {}
        self._stale: set[str] = set()
        self.url = self._store.url
        self._index = self._opened(every_s)
        self._store.attempts = 1  # the next round retries
        self.every_s = every_s

    def _opened(self, every_s: float) -> MirrorIndex:
        """Return the index to continue; write it to the store, so that missing permissions fail early."""
        own = self._folder / INDEX
        try:
            stored = self._store.read(INDEX)
            mine = MirrorIndex.parse(own.read_bytes(), str(self._folder)) if own.exists() else None
            index = None if stored is None else MirrorIndex.parse(stored, self.url)
            if index is not None and (mine is None or mine.id != index.id):
                raise ConfigError(
                    f"{_KEY}={self.url}: another run is mirrored there; give each run its own URL"
                )
            if index is None:  # a new mirror, or one that was deleted: no file is uploaded
                index = MirrorIndex(
                    id=mine.id if mine else uuid.uuid4().hex, writer="", round=0, every_s=every_s
                )
            index = replace(index, writer=uuid.uuid4().hex, every_s=every_s, round=index.round + 1)
            write_text(own, index.text())  # before the store, so that a kill does not lose the id
            self._store.write(INDEX, index.text().encode())
        except CodingModelError:
            raise
        except Exception as error:
            raise explained(error, f"{_KEY}={self.url}") from error
        return index

    def sync(self, *, final: bool = False) -> None:
        """Upload all changes since the last round.

        Args:
            final: no more writes will come, so upload files to their last byte.

        Raises:
            TakenOverError: another process mirrors this run now.
            Exception: any error of the protocol's library.
        """
        self._check_owner()
        files: dict[str, MirroredFile] = {}
        stamps: dict[str, Stamp] = {}  # kept only with the index: a round counts as a whole
        for path in self._mirrored():
            name = path.relative_to(self._folder).as_posix()
            known = self._index.files.get(name)
            try:
                stat = path.stat()
                stamp = (stat.st_size, stat.st_mtime_ns, -1 if final else stat.st_ino)
                if known is None or self._stamps.get(name) != stamp:
                    files[name] = self._uploaded(path, name, known, whole=final)
                else:
                    files[name] = known
                stamps[name] = stamp
            except FileNotFoundError:
                if path.exists():
                    raise  # the file is missing in the store, not here
                continue
            if known is not None:
                before = object_names(name, len(known.parts))
                self._stale |= set(before) - set(object_names(name, len(files[name].parts)))
        for name in self._index.files.keys() - files.keys():
            self._stale |= set(object_names(name, len(self._index.files[name].parts)))
        index = replace(self._index, files=files, round=self._index.round + 1)
        self._store.write(INDEX, index.text().encode())
        self._index, self._stamps = index, stamps
        write_text(self._folder / INDEX, index.text())
        needed = {
            name for path, file in files.items() for name in object_names(path, len(file.parts))
        }
        for name in sorted(self._stale - needed):  # the new index no longer names them
            self._store.remove(name)
        self._stale.clear()

    def _check_owner(self) -> None:
        """Check that this process still owns the mirror; start over if it was deleted.

        Raises:
            TakenOverError: another process mirrors this run now.
        """
        stored = self._store.read(INDEX)
        if stored is None:
            self._index, self._stamps = replace(self._index, files={}), {}
        elif MirrorIndex.parse(stored, self.url).writer != self._index.writer:
            raise TakenOverError(
                f"{self.url}: another process has resumed this run, and mirrors it now; end this one"
            )

    def _mirrored(self) -> Iterator[Path]:
        for top in sorted(self._folder.iterdir()):
            if top.name in NOT_MIRRORED:
                continue
            for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if (
                    path.is_file()
                    and not path.name.startswith(".")
                    and path.suffix not in _UNWANTED
                    and not leaves(self._folder, path)
                ):
                    yield path

    def _uploaded(
        self, path: Path, name: str, known: MirroredFile | None, *, whole: bool
    ) -> MirroredFile:
        stat = path.stat()
        grows = path.suffix in _GROWS
        size = stat.st_size if whole or not grows else _to_line_end(path, stat.st_size)
        old = known.parts if known else ()
        n = -(-size // PART_BYTES)
        # Keep the complete parts that this process has already uploaded of an append-only file, unless
        # another file has taken its name, as a rotation or a rewrite does.
        before = self._stamps.get(name)
        kept = 0
        if known and grows and before and before[2] == stat.st_ino and size >= known.bytes:
            kept = known.bytes // PART_BYTES
        # A new file may have the inode of the deleted one.
        if kept and digest(self._part(path, kept - 1, size)) != old[kept - 1]:
            kept = 0
        parts = list(old[:kept])
        moved = (len(old) > 1) != (n > 1)
        names = object_names(name, n)
        for number in range(0 if moved else kept, n):
            content = self._part(path, number, size)
            found = digest(content)
            if moved or number >= len(old) or old[number] != found:
                self._store.write(names[number], content)
            parts[number:] = [found]
        return MirroredFile(bytes=size, modified=stat.st_mtime, parts=tuple(parts))

    def _part(self, path: Path, number: int, size: int) -> bytes:
        """Return a masked part; also mask secrets that cross either end."""
        start = number * PART_BYTES
        end = min(start + PART_BYTES, size)
        before = min(self._overlap, start)
        with path.open("rb") as file:
            file.seek(start - before)
            content = masked(file.read(end - start + before + self._overlap), self._secrets)
        return content[before : before + end - start]


def _to_line_end(path: Path, size: int) -> int:
    """Return the size of a file up to its last complete line."""
    with path.open("rb") as file:
        end = size
        while end:
            start = max(0, end - (1 << 16))
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
    return 0


class BackgroundMirror:
    """A thread that keeps a mirror up to date, and prints each outage once."""

    def __init__(self, mirror: Mirror, say: Say) -> None:
        self._mirror = mirror
        self._say = say
        self._down = ""
        self._is_lost = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Upload the remaining changes; print a warning if that fails for a minute, or is too slow."""
        self._stop.set()
        self._thread.join(_CLOSE_S)
        if self._down or self._thread.is_alive():
            why = self._down or "the upload takes too long"
            self._say(
                f"the mirror {self._mirror.url} lacks the end of this run ({why}), "
                "which is in the run's folder; run the same command again to complete the mirror"
            )

    def _run(self) -> None:
        while not self._stop.is_set() and not self._is_lost:
            self._round()
            self._stop.wait(self._mirror.every_s)
        give_up = time.monotonic() + _LAST_TRY_S
        while not (self._is_lost or self._round(final=True)) and time.monotonic() < give_up:
            time.sleep(_PAUSE_S)

    def _round(self, *, final: bool = False) -> bool:
        try:
            self._mirror.sync(final=final)
        except TakenOverError as error:
            self._is_lost = True
            self._say(str(error))
            return False
        except Exception as error:  # noqa: BLE001 - a failed mirror must not end the run
            why = str(explained(error, self._mirror.url))
            if not self._down:
                self._say(f"mirror {why}; training continues, the next round retries")
            self._down = why.removeprefix(f"{self._mirror.url}: ")
            return False
        if self._down:
            self._say(f"the mirror {self._mirror.url} is up to date again")
        self._down = ""
        return True
