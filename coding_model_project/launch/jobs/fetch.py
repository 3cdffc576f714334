"""Copies of a job's run folder, from a path on a shared disk or from a URL."""

from __future__ import annotations

from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.launch.jobs.base import Job
from coding_model_project.runs.mirror.index import INDEX, MirrorIndex
from coding_model_project.runs.mirror.reading import pull
from coding_model_project.storage.copying import Copied, copy_changed
from coding_model_project.storage.object_store import ObjectStore, is_url
from coding_model_project.storage.store_errors import explaining

CHECKPOINTS = "checkpoints/"


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


def fetch(source: str, out: Path, *, checkpoints: bool) -> Copied:
    """Copy a run's folder; a repeated call copies only changed files.

    Args:
        source: the folder, or its URL, maybe of its mirror.
        checkpoints: whether to copy checkpoints too.

    Raises:
        ConfigError: nothing is there, or the user can correct why it cannot be read.
        CodingModelError: copying failed. Every file here is complete, and the next call resumes.
    """
    store = ObjectStore(source, "run folder", attempts=3)
    with explaining(source):
        if is_url(source) and (index := store.read(INDEX)) is not None:
            own = out / INDEX
            run_id = MirrorIndex.parse(index, store.url).id
            if own.exists() and MirrorIndex.parse(own.read_bytes(), str(out)).id != run_id:
                raise ConfigError(f"--out={out}: contains another run; choose another folder")
            return pull(store, out.absolute())
        entries = store.entries()
        if not entries:
            raise ConfigError(f"{store.url}: nothing there yet; the run has not begun to write")
        return copy_changed(
            store, entries, out, lambda path: checkpoints or not path.startswith(CHECKPOINTS)
        )
