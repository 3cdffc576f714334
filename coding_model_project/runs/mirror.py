"""`coding.mirror`: a copy of a run's folder at a URL, to follow or resume the run from another machine.

URL/PATH is the run's file PATH with its secrets masked; checkpoints are left out. An empty folder is
restored from the copy first. During the run its changed files are uploaded every N seconds. Its run.json
there says which run the copy is of, its heartbeat whether the run is alive, and a later attempt that
another process has resumed it. `following` reads copies.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.atomic import write_json, write_text
from coding_model_project.contained import leaves
from coding_model_project.errors import ConfigError
from coding_model_project.runs.folder import ATTEMPT, Attempt, RunFolder, plain_config
from coding_model_project.runs.following import (
    NOT_MIRRORED,
    RUN_JSON,
    files_of_run,
    is_same_run,
)
from coding_model_project.runs.lease import HEARTBEAT, LEASE_S
from coding_model_project.runs.masking import made_ours, masked, secrets_of
from coding_model_project.runs.resuming import comparable
from coding_model_project.storage.fetching import copy_changed
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
_KILLED = 137
_DIED = "ended without a record; its mirror stopped changing"

Say = Callable[[str], None]


class TakenOverError(ConfigError):
    """Another process has resumed the run, and mirrors it."""


class Mirror:
    """Copies of a run's files below a URL; each round uploads those that have changed."""

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
        self.every_s = every_s
        self._next_attempt = RunFolder(folder).last_number + 1
        self._sent: dict[str, tuple[int, int] | None] = {}
        """Size and time of each file as it was uploaded; None for those of an earlier process."""
        with explaining(f"{_KEY}={self.url}"):
            self._store.check_writable()
            stored = self._store.read(RUN_JSON)
            if stored is not None:
                if not is_same_run(stored, RunFolder(folder).run_json.read_bytes()):
                    raise ConfigError(
                        f"{_KEY}={self.url}: another run is mirrored there; give each run its own URL"
                    )
                self._sent = dict.fromkeys(files_of_run(self._store.entries()))
        self._store.attempts = 1  # the next round retries

    def sync(self) -> None:
        """Upload all changes since the last round.

        Raises:
            TakenOverError: another process mirrors this run now.
            Exception: any error of the protocol's library.
        """
        if self._store.read(f"logs/attempt_{self._next_attempt}/{ATTEMPT}") is not None:
            raise TakenOverError(
                f"{self.url}: another process has resumed this run, and mirrors it now; end this one"
            )
        if self._store.read(RUN_JSON) is None:  # a new mirror, or one that somebody deleted
            self._sent = {}
        found = set()
        for path in self._mirrored():
            name = path.relative_to(self._folder).as_posix()
            try:
                stat = path.stat()
                look = stat.st_size, stat.st_mtime_ns
                if self._sent.get(name) != look:
                    self._send(path, name, stat.st_size)
                    self._sent[name] = look
                found.add(name)
            except FileNotFoundError:
                if path.exists():
                    raise  # the file is missing in the store, not here
        for name in self._sent.keys() - found:
            self._store.remove(name)
            del self._sent[name]

    def _mirrored(self) -> Iterator[Path]:
        """Yield the files to upload; run.json last, which marks the copy as a run's."""
        for top in sorted(self._folder.iterdir(), key=lambda top: (top.name == RUN_JSON, top.name)):
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

    An attempt without a recorded end is watched for a while: if its heartbeat still changes, it is alive.

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
        if store.read(RUN_JSON) is None:
            return False
        partial = folder.with_name(f".restoring_{folder.name}")
        shutil.rmtree(partial, ignore_errors=True)
        copy_changed(store, files_of_run(store.entries()), partial)
        run = RunFolder(partial)
        recorded = run.config.read_text()
        attempts = run.attempts()
        if attempts and (last := attempts[-1]).exit_code is None:
            _refuse_live(store, last, plain_config(run.config)["coding"]["mirror"]["every_s"], say)
            file = run.log_dir(last.number) / ATTEMPT
            ending = {"ended": file.stat().st_mtime, "exit_code": _KILLED, "error": _DIED}
            write_json(file, json.loads(file.read_text()) | ending)
        write_text(run.config, made_ours(recorded, comparable(config), run.provenance()))
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(partial.iterdir(), key=lambda path: path.name == RUN_JSON):
            if (left := folder / path.name).is_dir():  # left by a killed restoration
                shutil.rmtree(left)
            path.replace(left)
        partial.rmdir()
    say(
        f"{folder}: restored from {store.url}, without checkpoints; for a new run, set another "
        "coding.mirror.url"
    )
    return True


def _refuse_live(store: ObjectStore, last: Attempt, every_s: float, say: Say) -> None:
    """Watch an attempt's heartbeat in the store by this machine's own clock.

    Raises:
        ConfigError: it still changes.
    """
    who = f"process {last.pid} on {last.host}"
    heartbeat = f"logs/attempt_{last.number}/{HEARTBEAT}"
    lease_s = LEASE_S + every_s
    seen, age_s = store.read(heartbeat), _age_s(store, heartbeat)
    if age_s < lease_s:
        say(
            f"{store.url}: {who} has not ended; watching its heartbeat there for {lease_s - age_s:.0f} "
            "s, and taking over if it does not change"
        )
    while age_s < lease_s:
        time.sleep(1.0)
        age_s += 1.0
        if store.read(heartbeat) != seen:
            raise ConfigError(
                f"coding.mirror.url={store.url}: the run is running ({who}); end it there, or choose "
                "another URL and another coding.run_dir"
            )


def _age_s(store: ObjectStore, path: str) -> float:
    """Return the seconds since an object was written, by the store's own clock."""
    probe = "mirror.now"
    store.write(probe, b"")
    now, written = (store.entry(one).modified for one in (probe, path))
    store.remove(probe)
    return now - written if now and written else 0.0
