"""Upload of a run's folder during the run: changed files, every N seconds, without checkpoints."""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from coding_model_project.atomic import write_text
from coding_model_project.contained import leaves
from coding_model_project.errors import ConfigError
from coding_model_project.runs.mirror.index import INDEX, NOT_MIRRORED, MirrorIndex
from coding_model_project.runs.mirror.masking import masked
from coding_model_project.storage.object_store import ObjectStore
from coding_model_project.storage.store_errors import explained, explaining

_UNWANTED = (".partial", ".safetensors", ".pt", ".bin")
"""Suffixes of incomplete files and weights."""
_CHUNK_BYTES = 8 << 20
_CLOSE_S = 600.0
"""Seconds that the end of a run waits for the mirror, however much is left to upload."""
_LAST_TRY_S = 60.0
"""Seconds during which the last round is repeated if it fails."""
_PAUSE_S = 5.0
_KEY = "coding.mirror.url"

Say = Callable[[str], None]


class TakenOverError(ConfigError):
    """Another process has resumed the run, and mirrors it."""


class Mirror:
    """Copies of a run's files below a URL, uploaded in rounds: each changed file, then the index."""

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
        self.url = self._store.url
        with explaining(f"{_KEY}={self.url}"):
            self._index = self._opened(every_s)
        self._store.attempts = 1  # the next round retries
        self.every_s = every_s

    def _opened(self, every_s: float) -> MirrorIndex:
        """Return the index to continue; write it to the store, so that missing permissions fail early."""
        own = self._folder / INDEX
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
        return index

    def sync(self) -> None:
        """Upload all changes since the last round.

        Raises:
            TakenOverError: another process mirrors this run now.
            Exception: any error of the protocol's library.
        """
        self._check_owner()
        files: dict[str, tuple[int, float]] = {}
        for path in self._mirrored():
            name = path.relative_to(self._folder).as_posix()
            try:
                stat = path.stat()
                look = stat.st_size, round(stat.st_mtime, 3)
                if self._index.files.get(name) != look:
                    self._send(path, name, stat.st_size)
                files[name] = look
            except FileNotFoundError:
                if path.exists():
                    raise  # the file is missing in the store, not here
        for name in self._index.files.keys() - files.keys():
            self._store.remove(name)
        self._index = replace(self._index, files=files, round=self._index.round + 1)
        self._store.write(INDEX, self._index.text().encode())
        write_text(self._folder / INDEX, self._index.text())

    def _check_owner(self) -> None:
        """Check that this process still owns the mirror; start over if it was deleted.

        Raises:
            TakenOverError: another process mirrors this run now.
        """
        stored = self._store.read(INDEX)
        if stored is None:
            self._index = replace(self._index, files={})
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

    def _send(self, path: Path, name: str, size: int) -> None:
        """Upload a masked copy; secrets that cross the end of a chunk are masked too."""
        overlap = max(map(len, self._secrets), default=1) - 1
        with path.open("rb") as file, tempfile.NamedTemporaryFile(prefix="mirror-") as copy:
            for start in range(0, size, _CHUNK_BYTES):
                n_before, n = min(overlap, start), min(_CHUNK_BYTES, size - start)
                file.seek(start - n_before)
                content = masked(file.read(n_before + n + overlap), self._secrets)
                copy.write(content[n_before : n_before + n])
            copy.flush()
            self._store.put(Path(copy.name), name, copy.tell())


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
        while not (self._is_lost or self._round()) and time.monotonic() < give_up:
            time.sleep(_PAUSE_S)

    def _round(self) -> bool:
        try:
            self._mirror.sync()
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
