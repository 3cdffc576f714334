"""Which class a Java program is started from, and what its file must be called."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|"""(?:\\.|.)*?(?:"""|\Z)|"(?:\\.|[^"\\\n])*(?:"|$)'
    r"|'(?:\\.|[^'\\\n])*(?:'|$)",
    re.S | re.M,
)
"""Comments and literals, whose words and braces are none. Each alternative always ends, so that an
unclosed one is not looked for again from its middle."""

_TOKEN = re.compile(r"[{}();]|[\w.$]+")
_KINDS = frozenset(["class", "interface", "enum", "record"])
_PACKAGE = re.compile(r"^[ \t]*package\s+([\w.]+)\s*;", re.M)
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
_DEFAULT = "Main"
_LONGEST = 200
"""Bytes of a name that a file can have, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a source's types ask for."""

    file: str
    """javac insists that a public class is in a file of its name."""
    main: str
    """The class with `main`, with its package."""


@dataclass(slots=True, kw_only=True)
class _Type:
    """A type that is in no other."""

    name: str
    is_public: bool
    has_main: bool = False


def names(source: str) -> Names:
    """Return the names for a source: `Main` before the public class before others, if it has a `main`."""
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
    """The words since the last type or statement that are in no block and no parentheses."""
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
    """The word after the first that says what kind of type begins."""
    at = next((n for n, word in enumerate(words) if word in _KINDS), len(words))
    name = words[at + 1] if at + 1 < len(words) else ""
    is_name = _IDENTIFIER.fullmatch(name) and len(name.encode()) <= _LONGEST
    return name if is_name else None
