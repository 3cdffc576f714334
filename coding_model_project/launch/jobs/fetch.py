"""Copies of a job's run folder, from a path on a shared disk or from a URL."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.contained import below
from coding_model_project.errors import CodingModelError, ConfigError, JobError
from coding_model_project.launch.jobs.base import Job
from coding_model_project.runs.mirror.mirror_index import INDEX, MirrorIndex
from coding_model_project.runs.mirror.replica import Replica, everything
from coding_model_project.storage.object_store import Entry, ObjectStore, is_url
from coding_model_project.storage.store_errors import explained

CHECKPOINTS = "checkpoints/"
_UNFINISHED = ".partial"
_SAME_TIME_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of a fetch."""

    source: str
    copied: int
    kept: int
    """Files that were up to date here."""


def source_of(job: Job) -> str:
    """Return the place of a job's run: its `coding.run_dir` if this machine has it, else its mirror.

    Raises:
        ConfigError: this machine has no such folder, and the job has no mirror.
    """
    source = job.run_dir if Path(job.run_dir).is_dir() else job.mirror
    if not source:
        raise ConfigError(
            f"coding.run_dir={job.run_dir}: not on this machine, and the job has no coding.mirror.url; "
            "run `jobs fetch` where the folder is, give its URL by --from, or submit with that key"
        )
    return source


def fetch(source: str, out: Path, *, checkpoints: bool, is_mirror: bool = True) -> Fetched:
    """Copy a run's folder; a repeated call copies only changed files.

    Args:
        source: the folder, or its URL.
        checkpoints: whether to copy checkpoints too.
        is_mirror: whether a URL may be a mirror, which has large files in parts; otherwise it has the
            run's files as they are.

    Raises:
        ConfigError: nothing is there, or the user can correct why it cannot be read.
        CodingModelError: copying failed. Every file here is complete, and the next call resumes.
    """
    store = ObjectStore(source, "run folder", attempts=3)
    try:
        if is_mirror and is_url(source) and (index := store.read(INDEX)) is not None:
            return _pull(store, MirrorIndex.parse(index, store.url).id, out.absolute())
        return _copy(store, out, checkpoints=checkpoints)
    except CodingModelError:
        raise
    except FileNotFoundError as error:
        raise JobError(f"{source}: {error} vanished meanwhile; fetch again") from error
    except Exception as error:  # each protocol's library has exceptions of its own
        raise explained(error, source) from error


def _pull(store: ObjectStore, run_id: str, out: Path) -> Fetched:
    own = out / INDEX
    if own.exists() and MirrorIndex.parse(own.read_bytes(), str(out)).id != run_id:
        raise ConfigError(f"--out={out}: contains another run; choose another folder")
    before = _stamps(out)
    files = Replica(store, "", out, everything).pull().files
    after = {path: stamp for path, stamp in _stamps(out).items() if path in files}
    copied = sum(before.get(path) != stamp for path, stamp in after.items())
    return Fetched(source=store.url, copied=copied, kept=len(after) - copied)


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and time of each file below a folder."""
    stats = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {
        path.relative_to(folder).as_posix(): (stat.st_size, stat.st_mtime_ns)
        for path, stat in stats.items()
    }


def _copy(store: ObjectStore, out: Path, *, checkpoints: bool) -> Fetched:
    entries = store.entries()
    if not entries:
        raise ConfigError(f"{store.url}: nothing there yet; the run has not begun to write")
    copied = kept = 0
    for path, entry in entries.items():
        if path.endswith(_UNFINISHED) or (path.startswith(CHECKPOINTS) and not checkpoints):
            continue
        target = below(out, path)
        if _is_same(target, entry):
            kept += 1
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = below(out, path + _UNFINISHED)
        store.get(path, partial)
        # The source's own time, so that clocks need not agree, and a change during the copy is noticed.
        os.utime(partial, (entry.modified, entry.modified))
        partial.replace(target)
        copied += 1
    return Fetched(source=store.url, copied=copied, kept=kept)


def _is_same(target: Path, entry: Entry) -> bool:
    """Return whether a copy has the size and time of its original."""
    if not target.is_file() or not entry.modified:
        return False
    here = target.stat()
    return here.st_size == entry.bytes and abs(here.st_mtime - entry.modified) < _SAME_TIME_S
