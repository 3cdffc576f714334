"""Matching of paths by the patterns of a .gitignore or .harborignore, as pathspec's `GitIgnoreSpec` does.

Its regular expressions take time exponential in a pattern's stars. Here a path takes time linear in its
length and the pattern's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

_ANY_FOLDERS = "**"
_MAX_PATTERNS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    ignores: bool
    """False for a pattern that starts with "!"."""
    segments: tuple[re.Pattern[str] | None, ...]
    """A regular expression per part of the path; None stands for any number of parts. If there are none,
    every path matches."""
    of_folders: bool
    """True if only folders match, and what is in them."""

    def place(self, parts: Sequence[str]) -> int | None:
        """Return the place after the part that the last segment matches; None if the path does not match.

        Of several matches the one with the longest parts for the first `**` counts, as in pathspec.
        """

        @cache
        def search(segment: int, at: int) -> int | None:
            if segment == len(self.segments):
                return at
            one = self.segments[segment]
            if one is not None:
                fits = at < len(parts) and one.fullmatch(parts[at]) is not None
                return search(segment + 1, at + 1) if fits else None
            if segment == len(self.segments) - 1:
                return at if max(at, 1) < len(parts) else None
            later = search(segment, at + 1) if at + 1 < len(parts) else None
            return search(segment + 1, at) if later is None else later

        return search(0, 0) if self.segments else len(parts)


class Ignored:
    """The patterns of a file.

    Raises:
        ValueError: a line is not a pattern, which the message names, or there are too many.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        found = (_pattern(line) for line in lines)
        self._patterns = [one for one in found if one is not None]
        if len(self._patterns) > _MAX_PATTERNS:
            raise ValueError(f"more than {_MAX_PATTERNS} patterns of files to ignore")

    def decide(self, path: str) -> bool | None:
        """Return whether a path is ignored, by the last pattern that matches it; None if none does.

        A pattern that matches the path itself goes before one that matches a folder above it.

        Args:
            path: a relative path, with a "/" at the end of a folder's.
        """
        parts = path.split("/")
        by_folder = None
        for one in reversed(self._patterns):
            end = one.place(parts)
            if end is not None:
                if end == len(parts) or (one.segments[-1] is None and not one.of_folders):
                    return one.ignores
                by_folder = one.ignores if by_folder is None else by_folder
        return by_folder


def _pattern(line: str) -> _Pattern | None:
    """Parse a line; comments, blank lines and invalid ranges of characters are no pattern."""
    text = line if line.endswith("\\ ") else line.rstrip()
    if text in ("", "/") or text.startswith("#"):
        return None
    words = text.removeprefix("!").split("/")
    of_folders = words[-1] == ""
    if words[0] == "":
        del words[0]
    elif len(words) == 1 or (len(words) == 2 and of_folders):
        words.insert(0, _ANY_FOLDERS)
    if not words:
        raise ValueError(f"{line!r} is not a pattern")
    if of_folders:
        words[-1] = _ANY_FOLDERS
    words = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if not before == word == _ANY_FOLDERS
    ]
    if words in ([_ANY_FOLDERS], [_ANY_FOLDERS, "*"]) and not of_folders:
        words = []
    try:
        segments = tuple(None if word == _ANY_FOLDERS else _segment(word) for word in words)
    except re.error:
        return None
    return _Pattern(ignores=not text.startswith("!"), segments=segments, of_folders=of_folders)


_PIECE = re.compile(
    r"\\(?P<escaped>.)|(?P<stars>\*+)|(?P<one>\?)|\[(?P<set>[!^]?\]?[^\]]*)\]|(?P<other>.)"
)


def _segment(word: str) -> re.Pattern[str]:
    """Return the regular expression of a part: the first match of the text after a star is the right one.

    Raises:
        ValueError: it ends with a single backslash.
        re.error: a range of characters is invalid.
    """
    if word == "*":
        return re.compile("[^/]+")
    pieces = [""]
    for found in _PIECE.finditer(word):
        match found.lastgroup:
            case "stars":
                pieces.append("")
            case "one":
                pieces[-1] += "[^/]"
            case "set":
                inside = found["set"].replace("\\", "\\\\")
                pieces[-1] += f"[^{inside[1:]}]" if inside[:1] in ("!", "^") else f"[{inside}]"
            case "other" if found["other"] == "[":
                raise re.error("a range without an end")
            case "other" if found["other"] == "\\":
                raise ValueError(f"{word!r} ends with a backslash")
            case kind:
                pieces[-1] += re.escape(found[kind or 0])
    *before, last = pieces[1:] or [""]
    middle = "".join(f"(?>[^/]*?{piece})" for piece in before)
    return re.compile(pieces[0] + middle + (f"[^/]*{last}" if pieces[1:] else ""))
