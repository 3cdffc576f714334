"""Code that appears literally in a verifier's files, which it may pass to an interpreter.

Any other text may have come from anywhere, including the agent's files.
"""

from __future__ import annotations

import ast
import encodings.cp437  # noqa: F401 - for names in zip files; rooms cannot import it later
import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress

_SINGLE = r"'(?P<single>[^']*)'"
_DOUBLE = r'"(?P<double>(?:[^"\\]|\\.)*)"'
_INLINE = re.compile(rf"""\s-[A-Za-z]*[ce]['"]?,?\s*(?:{_SINGLE}|{_DOUBLE})""", re.DOTALL)
"""A quoted text after -c or -e."""
_PROGRAM = re.compile(
    rf"\b(?:awk|gawk|mawk|sed)\b(?:\s+-\S+)*\s+(?:{_SINGLE}|{_DOUBLE})", re.DOTALL
)
_HERE = re.compile(
    r"<<-?\s*(['\"\\]?)(\w+)['\"]?[^\n]*\n(.*?\n)[\t ]*\2[ \t]*$", re.DOTALL | re.MULTILINE
)
_HOLE = re.compile(r"\$\((?:[^()]|\([^()]*\))*\)|\$\{[^}]*\}|\$[A-Za-z_]\w*|\$[0-9@*#?]|`[^`]*`")
"""Shell expansions."""
_FORMAT = re.compile(r"\{\w*\}|%[sdr]")
_FILLED = r"[\w./,:=@%+-]*"
"""Text that may replace an expansion: nothing that ends a word or begins a command."""
_UNREADABLE = (zipfile.BadZipFile, RuntimeError, NotImplementedError, zlib.error, EOFError)
_MIN_CHARS = 8
_MAX_BYTES = 1 << 20


class Literals:
    """Texts in trusted files that may be code."""

    def __init__(self) -> None:
        self._exact: set[str] = set()
        self._scripts: set[str] = set()
        self._patterns: list[re.Pattern[str]] = []
        self._here: list[re.Pattern[str]] = []

    def add(self, path: str, content: bytes) -> None:
        """Add the texts of a trusted file."""
        if path.endswith(".zip"):  # Python modules
            with suppress(*_UNREADABLE), zipfile.ZipFile(io.BytesIO(content)) as modules:
                for name in modules.namelist():
                    self.add(name, modules.read(name))
            return
        if len(content) > _MAX_BYTES or b"\0" in content:
            return
        text = content.decode("utf-8", "replace")
        if path.endswith(".py"):
            with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                self._python(ast.parse(text))
        else:
            self._shell(text)

    def has(self, code: str) -> bool:
        """Return whether a text is one of them, apart from expanded words."""
        code = code.strip()
        return bool(code) and (
            code in self._exact or any(one.fullmatch(code) for one in self._patterns)
        )

    def is_script(self, content: bytes) -> bool:
        """Return whether the content of a file or pipe is one of their here-documents."""
        if len(content) > _MAX_BYTES:
            return False
        text = content.decode("utf-8", "replace").strip()
        return bool(text) and (text in self._scripts or any(o.fullmatch(text) for o in self._here))

    def _shell(self, text: str) -> None:
        for found in (*_INLINE.finditer(text), *_PROGRAM.finditer(text)):
            if found["single"] is not None:
                self._exact.add(found["single"].strip())
            else:
                self._quoted(found["double"], self._exact, self._patterns)
        for found in _HERE.finditer(text):
            quoted, _, body = found.groups()
            if quoted:
                self._scripts.add(body.strip())
                self._shell(body)  # here-documents nest
            else:
                self._quoted(body, self._scripts, self._here)

    def _quoted(self, text: str, exact: set[str], patterns: list[re.Pattern[str]]) -> None:
        """Add a text in which a shell expands variables and removes backslashes."""
        pieces, at = [], 0
        for hole in _HOLE.finditer(text):
            if hole.start() and text[hole.start() - 1] == "\\":
                continue
            pieces.append(text[at : hole.start()])
            at = hole.end()
        pieces.append(text[at:])
        plain = [re.sub(r'\\([$`"\\\n])', r"\1", piece) for piece in pieces]
        if len(plain) == 1:
            exact.add(plain[0].strip())
        elif sum(map(len, plain)) >= _MIN_CHARS:
            patterns.append(_filled(plain, re.DOTALL))

    def _python(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._word(_FORMAT.split(node.value), node.value)
            elif isinstance(node, ast.JoinedStr):
                self._word(list(_parts(node)), None)

    def _word(self, pieces: list[str], whole: str | None) -> None:
        text = "".join(pieces)
        if len(text) < _MIN_CHARS or not any(c.isspace() for c in text.strip()):
            return  # a single word may appear anywhere, and may be an agent's whole program
        if whole is not None:
            self._exact.add(whole.strip())
        if len(pieces) > 1:
            self._patterns.append(_filled(pieces))


def _filled(pieces: list[str], flags: int = 0) -> re.Pattern[str]:
    """Return a pattern of these pieces, stripped, with words between them.

    It strips before escaping, since stripping an escaped blank leaves its backslash.
    """
    pieces = [pieces[0].lstrip(), *pieces[1:]]
    pieces[-1] = pieces[-1].rstrip()
    return re.compile(_FILLED.join(map(re.escape, pieces)), flags)


def _parts(node: ast.JoinedStr) -> Iterator[str]:
    """Yield the fixed pieces of an f-string, with a gap between any two."""
    held = ""
    for value in node.values:
        if isinstance(value, ast.Constant):
            held += str(value.value)
        else:
            yield held
            held = ""
    yield held
