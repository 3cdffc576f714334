"""`coding.mirror` around a run: restore an empty folder first, then mirror it during the run."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.atomic import write_json, write_text
from coding_model_project.errors import ConfigError
from coding_model_project.runs.attempt import ATTEMPT
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.mirror.index import INDEX, MirrorIndex
from coding_model_project.runs.mirror.masking import secrets_of
from coding_model_project.runs.mirror.mirror import BackgroundMirror, Mirror
from coding_model_project.runs.mirror.reading import pull
from coding_model_project.runs.moved_config import made_ours
from coding_model_project.runs.refusal import comparable
from coding_model_project.storage.object_store import ObjectStore
from coding_model_project.storage.store_errors import explaining

_ROUNDS_OF_A_DEAD_ONE = 3
_SLOWEST_ROUND_S = 30.0
_KILLED = 137
_DIED = "ended without a record; its mirror stopped changing"

Say = Callable[[str], None]


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
            _note_death(run.log_dir(last[0].number) / ATTEMPT)
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
    now, written = store.modified(probe), store.modified(INDEX)
    store.remove(probe)
    return (now - written).total_seconds() if now and written else 0.0


def _note_death(attempt: Path) -> None:
    fields = json.loads(attempt.read_text())
    ended = attempt.stat().st_mtime
    write_json(attempt, {**fields, "ended": ended, "exit_code": _KILLED, "error": _DIED})
