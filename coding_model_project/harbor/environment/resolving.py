"""Resolution of links that an agent may have made, in bounded time."""

from __future__ import annotations

import errno
import os

_MOST_LINKS = 40
"""The kernel's limit."""

_NOT_A_LINK = (errno.EINVAL, errno.ENOENT, errno.ENOTDIR)


def resolve(path: str) -> str:
    """Return the path to which an absolute path's links lead; what is missing counts as a folder.

    Unlike `os.path.realpath`, it ends after as many links as the kernel follows.

    Raises:
        OSError: there are more, or one cannot be read.
    """
    pending = path.split("/")[::-1]
    at, links = "", 0
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = at.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"{at}/{part}")  # noqa: PTH115 - no pathlib in a room
        except OSError as error:
            if error.errno not in _NOT_A_LINK:
                raise
            at = f"{at}/{part}"
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        at = "" if target.startswith("/") else at
        pending += target.split("/")[::-1]
    return at or "/"
