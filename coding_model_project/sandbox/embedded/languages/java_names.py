"""Detection of a Java program's main class, and of its source file's required name."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|"""(?:\\.|.)*?(?:"""|\Z)|"(?:\\.|[^"\\\n])*(?:"|$)'
    r"|'(?:\\.|[^'\\\n])*(?:'|$)",
    re.S | re.M,
)
"""Comments and literals, whose words and braces do not count. Each alternative also matches an unclosed
one to its end, so that matching never restarts from the middle of it."""

_TOKEN = re.compile(r"[{}();]|[\w.$]+")
_KINDS = frozenset(["class", "interface", "enum", "record"])
_PACKAGE = re.compile(r"^[ \t]*package\s+([\w.]+)\s*;", re.M)
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
_DEFAULT = "Main"
_LONGEST = 200
"""Most bytes of a name that can also be a file's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names that follow from a source's types."""

    file: str
    """Name of the source file; javac requires that of a public class."""
    main: str
    """The class with `main`, with its package."""


@dataclass(slots=True, kw_only=True)
class _Type:
    """A top-level type."""

    name: str
    is_public: bool
    has_main: bool = False


def names(source: str) -> Names:
    """Return the names for a source; of classes with a `main`, prefer `Main`, then the public one."""
    text = _HIDDEN.sub(" ", source)
    types = _types(text)
    public = next((found.name for found in types if found.is_public), None)
    order = sorted(types, key=lambda found: (found.name != _DEFAULT, found.name != public))
    started = next((found.name for found in order if found.has_main), None)
    main = started or public or (types[0].name if types else _DEFAULT)
    package = _PACKAGE.search(text)
    return Names(file=f"{public or main}.java", main=f"{package[1]}.{main}" if package else main)


def _types(text: str) -> list[_Type]:
    types: list[_Type] = []
    before: list[str] = []
    """Words since the last type or statement, outside blocks and parentheses."""
    blocks = parentheses = 0
    last = ("", "")
    for token in _TOKEN.findall(text):
        if token == "(" and last == ("void", "main") and blocks == 1 and types:
            types[-1].has_main = True
        last = (last[1], token)
        parentheses += {"(": 1, ")": -1}.get(token, 0)
        if token == "{":
            if blocks == 0 and (named := _named(before)):
                types.append(_Type(name=named, is_public="public" in before))
            blocks += 1
        elif token == "}":
            blocks = max(0, blocks - 1)
        if token in ("{", "}", ";"):
            before, parentheses = [], 0
        elif blocks == 0 and parentheses == 0:
            before.append(token)
    return types


def _named(words: list[str]) -> str | None:
    """Return the word after the first `class`, `interface`, `enum` or `record`."""
    at = next((n for n, word in enumerate(words) if word in _KINDS), len(words))
    name = words[at + 1] if at + 1 < len(words) else ""
    is_name = _IDENTIFIER.fullmatch(name) and len(name.encode()) <= _LONGEST
    return name if is_name else None
