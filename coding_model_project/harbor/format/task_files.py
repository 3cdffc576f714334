"""Which of a task's files are used: what .harborignore leaves out, and links that lead nowhere good."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec

IGNORE_FILE = ".harborignore"
"""Counts in tests/ and solution/, a task's or a step's, and the folders below them; nowhere else."""


class TaskFiles:
    """The files below one task's folder."""

    def __init__(self, root: Path) -> None:
        """
        Args:
            root: the task's folder, resolved.
        """
        self.root = root
        self._specs: dict[Path, GitIgnoreSpec] = {}

    def text(self, path: Path) -> str:
        """A file's text.

        Raises:
            ValueError: it is missing, no file of the task, or not UTF-8; names it.
        """
        shown = path.relative_to(self.root).as_posix()
        if not path.resolve().is_relative_to(self.root):
            raise ValueError(f"{shown} is a link out of the task")
        if not path.exists():
            raise ValueError(f"{shown} is missing")
        if not path.is_file():
            raise ValueError(f"{shown} is no file")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{shown} is not UTF-8") from error

    def selected(self, folder: Path) -> tuple[Path, ...]:
        """What of a folder goes into an environment: paths relative to it, folders before their files.

        Links are listed and not followed.
        """
        found: list[Path] = []

        def visit(current: Path) -> None:
            for path in sorted(current.iterdir()):
                if self.ignored(path):
                    continue
                found.append(path.relative_to(folder))
                if path.is_dir() and not path.is_symlink():
                    visit(path)

        if folder.is_dir() and not self.ignored(folder):
            visit(folder)
        return tuple(found)

    def check_links(self, path: Path) -> None:
        """Raises:
        ValueError: a link at or below `path` leads out of the task, or round in a circle.
        """
        self._check_links(path, frozenset())

    def _check_links(self, path: Path, above: frozenset[Path]) -> None:
        if self.ignored(path):
            return
        target = path.resolve()
        shown = path.relative_to(self.root)
        if not target.is_relative_to(self.root):
            raise ValueError(f"{shown} is a link out of the task")
        if not path.is_dir():
            return
        if target in above:
            raise ValueError(f"{shown} is a link to a folder above it")
        for child in path.iterdir():
            self._check_links(child, above | {target})

    def ignored(self, path: Path) -> bool:
        """Whether .harborignore leaves a path out, or what a link at it points to."""
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
        """What the innermost folder with a pattern that matches says: its last such pattern counts."""
        for folder in reversed(folders):
            shown = path.relative_to(folder).as_posix() + ("/" if path.is_dir() else "")
            said = self._spec(folder).check_file(shown).include
            if said is not None:
                return said
        return False

    def _spec(self, folder: Path) -> GitIgnoreSpec:
        if folder not in self._specs:
            file = folder / IGNORE_FILE
            text = self.text(file) if file.is_symlink() or file.exists() else ""
            self._specs[folder] = GitIgnoreSpec.from_lines(text.splitlines())
        return self._specs[folder]


def _is_scope(parts: Sequence[str]) -> bool:
    in_step = len(parts) == 3 and parts[0] == "steps"
    return (len(parts) == 1 or in_step) and parts[-1] in ("tests", "solution")
