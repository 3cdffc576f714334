"""Conversion of trees to and from tar files, which images can unpack and pack themselves."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

from coding_model_project.contained import Members
from coding_model_project.harbor.environment.tree import Entry, Tree

MAX_ENTRIES = 20_000
"""Most files, folders and links of a tree that comes out of an environment."""


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


def from_tar(packed: bytes, max_bytes: int) -> Tree:
    """Return the tree in a tar file, whose writer may be hostile: an agent may replace a room's `tar`.

    Raises:
        OSError: the file is damaged or compressed, a name leads out of the tree, or there is too much.
    """
    entries: list[Entry] = []
    parts: list[bytes] = []
    contents: dict[str, bytes] = {}
    members = Members(MAX_ENTRIES, max_bytes)
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            for about in archive:
                name = about.name.removeprefix("./")
                if name in ("", "."):
                    continue
                size = len(contents[_linked(about)]) if about.islnk() else about.size
                members.add(name, size if _is_file(about) else 0, link=about.issym())
                if about.isdir():
                    entries.append((name, "d", about.mode & 0o7777, 0))
                elif about.issym():
                    entries.append((name, "l", 0o777, about.linkname))
                elif _is_file(about):
                    contents[name] = _content(archive, about, contents)
                    parts.append(contents[name])
                    entries.append((name, "f", about.mode & 0o7777, len(parts[-1])))
    except (tarfile.TarError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
        raise OSError(f"not a readable tar file: {error}") from error
    return Tree(tuple(entries), b"".join(parts))


def _is_file(about: tarfile.TarInfo) -> bool:
    return about.isreg() or about.islnk()


def _linked(about: tarfile.TarInfo) -> str:
    return about.linkname.removeprefix("./")


def _content(
    archive: tarfile.TarFile, about: tarfile.TarInfo, contents: Mapping[str, bytes]
) -> bytes:
    """Return a file's content, that of an earlier member for a hard link."""
    if about.islnk():
        return contents[_linked(about)]
    file = archive.extractfile(about)
    assert file is not None
    return file.read()
