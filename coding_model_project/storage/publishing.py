"""Results written to a URL: made in a temporary folder, and uploaded when complete."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coding_model_project.contained import below
from coding_model_project.redaction import redacted
from coding_model_project.storage.object_store import ObjectStore, as_url
from coding_model_project.storage.store_errors import explaining

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
