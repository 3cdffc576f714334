"""Conversion of trees to and from tar files, which images can unpack and pack themselves."""

from __future__ import annotations

import io
import os
import tarfile

from coding_model_project.harbor.environment.tree import Entry, Tree


def to_tar(tree: Tree) -> bytes:
    """Return a tree as a tar file; root owns all files."""
    made, at = io.BytesIO(), 0
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, mode, extra in tree.entries:
            about = tarfile.TarInfo(name)
            about.mode = mode
            body = None
            match kind, extra:
                case "d", _:
                    about.type = tarfile.DIRTYPE
                case "l", str(target):
                    about.type, about.linkname = tarfile.SYMTYPE, target
                case _, int(size):
                    about.size, body = size, io.BytesIO(tree.body[at : at + size])
                    at += size
            archive.addfile(about, body)
    return made.getvalue()


def from_tar(packed: bytes) -> Tree:
    """Return the tree in a tar file.

    Raises:
        tarfile.TarError: the file is damaged.
    """
    entries: list[Entry] = []
    parts: list[bytes] = []
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for about in archive:
            name = os.path.normpath(about.name)
            if about.isdir() and name != ".":
                entries.append((name, "d", about.mode, 0))
            elif about.issym():
                entries.append((name, "l", 0o777, about.linkname))
            elif about.isreg() or about.islnk():
                content = archive.extractfile(about)
                assert content is not None
                parts.append(content.read())
                entries.append((name, "f", about.mode, len(parts[-1])))
    return Tree(tuple(entries), b"".join(parts))
