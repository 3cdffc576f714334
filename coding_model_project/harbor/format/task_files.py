"""Selection of a task's files by .harborignore, and checks of links that lead out of the task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec

from coding_model_project.contained import leaves
from coding_model_project.harbor.environment.tree import Tree, of_folder

IGNORE_FILE = ".harborignore"
"""File name that applies in tests/ and solution/ of a task or step and below, but nowhere else."""

_MAX_TEXT = 1 << 20
_MAX_BYTES = 1 << 30
"""Maximum size of a task's files, which are held in memory; sparse files count in full."""


_MAX_DEPTH = 100
_MAX_PATTERNS = 1_000
_MAX_STARS = 2
"""Maximum stars in a name, and `**` in a pattern: matching takes time exponential in them."""


def _patterns(lines: Sequence[str]) -> GitIgnoreSpec:
    """Return the patterns of a .harborignore.

    Raises:
        ValueError: a line is not a pattern, which the message names, or has many stars.
    """
    if len(lines) > _MAX_PATTERNS:
        raise ValueError(f"more than {_MAX_PATTERNS} patterns of files to ignore")
    for line in lines:
        names = line.rstrip().split("/")
        stars = [name.count("*") for name in names if name != "**"]
        if max(names.count("**"), *stars, 0) > _MAX_STARS:
            raise ValueError(
                f"{line!r}: more than {_MAX_STARS} stars in a name, or more than {_MAX_STARS} `**`"
            )
    try:
        return GitIgnoreSpec.from_lines(lines)
    except re.error as error:
        raise ValueError(f"an invalid pattern of files to ignore: {error}") from error


class TaskFiles:
    """The files below one task's folder."""

    def __init__(self, root: Path) -> None:
        """
        Args:
            root: the task's folder, resolved.
        """
        self.root = root
        self._n_bytes = 0
        self._specs: dict[Path, GitIgnoreSpec] = {}

    def text(self, path: Path) -> str:
        """Read a file's text.

        Raises:
            ValueError: it is missing, not a file of the task, or not UTF-8; the message names it.
        """
        shown = path.relative_to(self.root).as_posix()
        if leaves(self.root, path):
            raise ValueError(f"{shown} is a link out of the task")
        if not path.exists():
            raise ValueError(f"{shown} is missing")
        if not path.is_file():
            raise ValueError(f"{shown} is not a file")
        if path.stat().st_size > _MAX_TEXT:
            raise ValueError(f"{shown} has more than {_MAX_TEXT} bytes")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{shown} is not UTF-8") from error

    def tree(self, folder: Path) -> Tree:
        """Return the files of a folder that go into an environment; links stay links.

        Raises:
            OSError: one cannot be read.
        """
        if not folder.is_dir() or self.ignored(folder):
            return Tree()
        return of_folder(folder, lambda name: not self.ignored(folder / name))

    def check_links(self, path: Path) -> None:
        """Raise if a link at or below `path` leads out of the task, or the task is too large.

        Raises:
            ValueError: it does.
        """
        for one in (path, *path.rglob("*")):
            if self._matched(one):
                continue
            shown = one.relative_to(self.root)
            if leaves(self.root, one):
                raise ValueError(f"{shown} is a link out of the task")
            if len(shown.parts) > _MAX_DEPTH:
                raise ValueError(f"{shown}: more than {_MAX_DEPTH} folders within each other")
            self._n_bytes += one.stat().st_size if one.is_file() else 0
            if self._n_bytes > _MAX_BYTES:
                raise ValueError(f"{shown}: the task's files have more than {_MAX_BYTES} bytes")

    def ignored(self, path: Path) -> bool:
        """Return whether .harborignore excludes a path, or the target of a link there."""
        if self._matched(path):
            return True
        target = path.resolve()
        return target != path and target.is_relative_to(self.root) and self._matched(target)

    def _matched(self, path: Path) -> bool:
        if path.name == IGNORE_FILE:
            return True
        parts = path.relative_to(self.root).parts
        n_above = next((n for n in (0, 2) if _is_scope(parts[: n + 1])), None)
        if n_above is None:
            return False
        scope = self.root.joinpath(*parts[: n_above + 1])
        inside = [
            scope,
            *(self.root.joinpath(*parts[:n]) for n in range(n_above + 2, len(parts) + 1)),
        ]
        return any(self._decided(one, inside[:n]) for n, one in enumerate(inside) if n)

    def _decided(self, path: Path, folders: Sequence[Path]) -> bool:
        """Return whether a path is ignored, by the last matching pattern of the innermost folder."""
        for folder in reversed(folders):
            shown = path.relative_to(folder).as_posix() + ("/" if path.is_dir() else "")
            decision = self._spec(folder).check_file(shown).include
            if decision is not None:
                return decision
        return False

    def _spec(self, folder: Path) -> GitIgnoreSpec:
        if folder not in self._specs:
            file = folder / IGNORE_FILE
            text = self.text(file) if file.is_symlink() or file.exists() else ""
            self._specs[folder] = _patterns(text.splitlines())
        return self._specs[folder]


def _is_scope(parts: Sequence[str]) -> bool:
    in_step = len(parts) == 3 and parts[0] == "steps"
    return (len(parts) == 1 or in_step) and parts[-1] in ("tests", "solution")
