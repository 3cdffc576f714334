"""Results written to a URL: made in a temporary folder, and uploaded when complete."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coding_model_project.errors import CodingModelError
from coding_model_project.storage.object_store import ObjectStore, as_url
from coding_model_project.storage.store_errors import explained

_LAST = ("manifest.json", "config.json")
"""Files that mark a folder as complete for its readers; uploaded last."""


@contextmanager
def published(out: Path) -> Iterator[Path]:
    """Yield a local path in place of a URL, then upload all files written at or beside it.

    A URL that cannot be written raises an error before the block runs.

    Raises:
        ConfigError: it cannot be written, for a reason that the user can correct.
        DownloadError: the store does not answer.
    """
    parent, _, name = as_url(out).rstrip("/").rpartition("/")
    with tempfile.TemporaryDirectory(prefix="coding_out_") as folder:
        try:
            store = ObjectStore(parent, "object store")
            store.check_writable()
            yield Path(folder) / name
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            for path in sorted(files, key=lambda path: (path.name in _LAST, path)):
                size = path.stat().st_size
                store.put(path, path.relative_to(folder).as_posix(), size)
        except (CodingModelError, KeyboardInterrupt, SystemExit):
            raise
        except OSError as error:
            if error.filename and os.fspath(error.filename).startswith(folder):
                raise  # an error of this machine's disk
            raise explained(error, as_url(out)) from error
        except Exception as error:
            if not type(error).__module__.startswith(("botocore", "aiobotocore", "aiohttp")):
                raise  # an error of the block itself
            raise explained(error, as_url(out)) from error
    sys.stderr.write(f"uploaded to {as_url(out)}\n")
