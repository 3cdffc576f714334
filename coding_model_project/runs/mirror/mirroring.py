"""`coding.mirror` around a run: restore an empty folder first, then mirror it during the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.mirror.masking import secrets_of
from coding_model_project.runs.mirror.mirror import BackgroundMirror, Mirror
from coding_model_project.runs.mirror.restoring import restore

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
