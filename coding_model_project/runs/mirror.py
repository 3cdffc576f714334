"""`coding.mirror`: a copy of a run's folder at a URL, to follow or resume the run from another machine.

An empty folder is restored from the copy first. During the run its changed files are uploaded every N
seconds, without checkpoints, with their secrets masked. `following` reads copies.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.atomic import write_json, write_text
from coding_model_project.contained import leaves
from coding_model_project.errors import ConfigError
from coding_model_project.runs.folder import ATTEMPT, RunFolder
from coding_model_project.runs.following import INDEX, NOT_MIRRORED, MirrorIndex, pull
from coding_model_project.runs.masking import made_ours, masked, secrets_of
from coding_model_project.runs.resuming import comparable
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
_ROUNDS_OF_A_DEAD_ONE = 3
_SLOWEST_ROUND_S = 30.0
_KILLED = 137
_DIED = "ended without a record; its mirror stopped changing"

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


@contextmanager
def mirrored(config: DictConfig, folder: Path, say: Say) -> Iterator[Callable[[], None]]:
    """Restore a run's folder from its mirror; on leaving, finish the mirror.

    It yields the function that starts mirroring. Call that once no other process can write into the
    folder: a mirror has one writer, the last one started.

    Raises:
        ConfigError: the URL cannot be used, or the run is running elsewhere. The yielded function
            raises it if another run is mirrored there.
        DownloadError: the store does not answer.
    """
    url = OmegaConf.select(config, "coding.mirror.url")
    if url is None:
        yield lambda: None
        return
    if not RunFolder(folder).run_json.exists():
        restore(url, config, folder, say)
    running: list[BackgroundMirror] = []

    def start() -> None:
        plain = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
        secrets = secrets_of(plain, os.environ)
        running.append(
            BackgroundMirror(Mirror(folder, url, config.coding.mirror.every_s, secrets), say)
        )

    try:
        yield start
    finally:
        for mirror in running:
            mirror.close()


def restore(url: str, config: DictConfig, folder: Path, say: Say) -> bool:
    """Restore a run's folder from its mirror, if there is one.

    An attempt without a recorded end is watched for a while: if its mirror still changes, it is alive.

    Args:
        config: this start's configuration, whose secrets replace the masked ones.

    Returns:
        Whether a mirror was restored.

    Raises:
        ConfigError: the URL cannot be used, or the run is running elsewhere.
        DownloadError: the store does not answer.
    """
    with explaining(f"coding.mirror.url={url}"):
        store = ObjectStore(url, "mirror", attempts=3)
        content = store.read(INDEX)
        if content is None:
            return False
        index = MirrorIndex.parse(content, store.url)
        partial = folder.with_name(f".restoring_{folder.name}")
        pull(store, partial)
        run = RunFolder(partial)
        last = run.attempts()[-1:]
        if not last:
            _refuse_live(store, index, "a process that has just started", say)
        elif last[0].exit_code is None:
            _refuse_live(store, index, f"process {last[0].pid} on {last[0].host}", say)
            file = run.log_dir(last[0].number) / ATTEMPT
            ending = {"ended": file.stat().st_mtime, "exit_code": _KILLED, "error": _DIED}
            write_json(file, json.loads(file.read_text()) | ending)
        if run.config.exists():
            recorded = run.config.read_text()
            write_text(run.config, made_ours(recorded, comparable(config), run.provenance()))
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(partial.iterdir(), key=lambda path: path.name == "run.json"):
            if (left := folder / path.name).is_dir():  # left by a killed restoration
                shutil.rmtree(left)
            path.replace(left)
        partial.rmdir()
        partial.with_name(f".{partial.name}.lock").unlink(missing_ok=True)
    say(
        f"{folder}: restored from {store.url}, without checkpoints; for a new run, set another "
        "coding.mirror.url"
    )
    return True


def _refuse_live(store: ObjectStore, index: MirrorIndex, who: str, say: Say) -> None:
    """Watch an index by this machine's own clock.

    Raises:
        ConfigError: the index still changes.
    """
    lease_s = _ROUNDS_OF_A_DEAD_ONE * index.every_s + _SLOWEST_ROUND_S
    age_s = _age_s(store)
    if age_s < lease_s:
        say(
            f"{store.url}: {who} has not ended; watching its mirror for {lease_s - age_s:.0f} s, and "
            "taking over if it does not change"
        )
    while True:
        if store.read(INDEX) != index.text().encode():
            raise ConfigError(
                f"coding.mirror.url={store.url}: the run is running ({who}); end it there, or choose "
                "another URL and another coding.run_dir"
            )
        if age_s >= lease_s:
            return
        time.sleep(1.0)
        age_s += 1.0


def _age_s(store: ObjectStore) -> float:
    """Return the seconds since the index was written, by the store's own clock."""
    probe = "mirror.now"
    store.write(probe, b"")
    now, written = (store.entry(path).modified for path in (probe, INDEX))
    store.remove(probe)
    return now - written if now and written else 0.0
