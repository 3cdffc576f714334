"""Fenced code blocks, by CommonMark's rules for fences and the habits of models, in one pass over lines.

- A fence is three or more backticks or tildes on their own line. The info string after backticks holds
  no backtick. A block ends at a fence of the same character that is at least as long, has nothing after
  it (except tokens and tags that end a turn: `</s>`, `<|im_end|>`, `</answer>`) and is indented at most
  three columns more than its opener; else at the end of the text.
- Openers may have any indentation and follow `- ` and `> ` in lists and block quotes. A block inside a
  block quote ends with the quote; one in a list need not be indented, as models often forget to.
- A fence inside a literal of the code is text: a block that would end within a triple-quoted string, a
  here-document or a raw string extends to the first closing fence outside of one.
- An unclosed block ends at the next opener that cannot belong to its text: for a block tagged with the
  target language, any tagged opener; for an untagged block, one of that language. In blocks of other
  languages (`markdown`) such openers count on request.
- A Python block that parses only up to a fence at the end of a line (`print(1)```) ends there; so does
  a block in any language that has no other end.

An info string may have any spelling that models use: `python`, `Python3`, `py3.11`, `python
title="a.py"`, `python:main.py`, `{.python .numberLines}`, `language-python`, `main.py` and `code
python` all name Python.

A parser of CommonMark would find fewer programs: to it, a fence below `<answer>` is HTML, one indented
by four columns below a sentence is prose, a list's block ends at its first line that is not indented,
and the second of two unclosed blocks is text of the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from coding_model_project.grading.literals import parses, read
from coding_model_project.sandbox.languages import EXTENSIONS, LANGUAGES

MAX_TRIES = 8
"""Maximum number of ends tried at fences after code, per block, and after literals, per text."""

_TAB = 4
_BLANK = " \t\r"
_OPENER = re.compile(r"((?:[ \t>]|(?:[-*+]|\d{1,9}[.)])(?=[ \t]))*+)(`{3,}+|~{3,}+)(.*)")
"""The marks of lists and quotes around a block, its fence, and its info string."""
_QUOTE = re.compile(r"[ \t]*> ?")
_MAY_SPAN_LINES = re.compile(r"'''|\"\"\"|<<|R\"")

_SPECIAL_TOKEN = r"<[|\uff5c][^<>\s]{1,60}[|\uff5c]>"
_ENDS = re.compile(
    rf"(?:\s*(?:{_SPECIAL_TOKEN}|</(?!think>)[A-Za-z][\w.:-]{{0,40}}>|<(?:eos|end_of_\w{{1,20}})>"
    r"|\[/?[A-Z]{2,10}\]))*[ \t\r]*"
)
"""Tokens and tags that models write directly behind a fence: ends of a turn, of an answer."""
_LAST_TOKENS = re.compile(rf"(?:(?:{_SPECIAL_TOKEN}|</s>|<(?:eos|end_of_turn)>)\s*)+\Z")
_LAST = 512


def without_end_tokens(text: str) -> str:
    """Return a completion without the special tokens at its end, which some servers leave there."""
    return text[:-_LAST] + _LAST_TOKENS.sub("", text[-_LAST:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block."""

    first: int
    """The line index of its opening fence."""
    end: int
    """The line index after its last line."""
    language: str
    """`language_of` its info string."""
    code: str
    closed: bool
    """False if the text ends before the block does: it was probably truncated."""
    inside: bool
    """True if it is in a list or a block quote, or indented."""


@dataclass(frozen=True, slots=True)
class _Opener:
    line: int
    fence: str
    quotes: int
    indent: int
    language: str

    def is_closed_by(self, line: str) -> bool:
        """Return whether a line, without block quote marks, closes this fence."""
        fence = line.lstrip(_BLANK)
        if not fence.startswith(self.fence):
            return False
        return _indent(line) <= self.indent + 3 and bool(_ENDS.fullmatch(fence.lstrip(self.fence)))


class Fences:
    """The lines of a text and the blocks in them.

    Args:
        language: the target language, whose literals are respected.
    """

    def __init__(self, text: str, language: str) -> None:
        self.lines = text.split("\n")
        self._language = language
        self._tries = MAX_TRIES

    def blocks(self, *, inside_others: bool = False, outlines: bool = False) -> Iterator[Block]:
        """Yield all blocks in order; those of the language and untagged ones with regard to literals.

        Args:
            inside_others: look for blocks of the language inside blocks of other languages.
            outlines: find all blocks by their fences alone.
        """
        at = 0
        while (opener := self._next_opener(at)) is not None:
            ours = not outlines and opener.language in ("", self._language)
            block = self._block(opener, opener.line + 1, nesting=ours or inside_others)
            block = self._by_literals(opener, block) if ours else block
            yield block
            at = block.end

    def _next_opener(self, at: int) -> _Opener | None:
        found = (opener_of(self.lines[line], line) for line in range(at, len(self.lines)))
        return next((opener for opener in found if opener is not None), None)

    def _block(self, opener: _Opener, at: int, *, nesting: bool) -> Block:
        """Return the block up to the first line from `at` on that ends it."""
        for number in range(at, len(self.lines)):
            line = _without_quotes(self.lines[number], opener.quotes)
            if line is None:
                return self._cut(opener, number, number)
            if opener.is_closed_by(line):
                return self._cut(opener, number, number + 1)
            if nesting and self._opens_another(opener, line):
                return self._cut(opener, number, number, closed=False)
        return self._cut(opener, len(self.lines), len(self.lines), closed=False)

    def _opens_another(self, opener: _Opener, line: str) -> bool:
        other = opener_of(line, 0)
        if other is None:
            return False
        tagged = other.language != "" and other.fence[0] == "`"  # "~~~x" is an expression
        return other.language == self._language or (tagged and opener.language == self._language)

    def _cut(
        self,
        opener: _Opener,
        code_end: int,
        end: int,
        *,
        closed: bool = True,
        last: str = "",
    ) -> Block:
        """Return the block of the lines before `code_end`, and optionally a part of that line."""
        lines = self.lines[opener.line + 1 : code_end]
        if code_end < len(self.lines):
            lines.append(last)  # or nothing, behind the last line's newline
        lines = [_without_quotes(line, opener.quotes) or "" for line in lines]
        if opener.indent:
            first = next((_indent(line) for line in lines if line.strip(_BLANK)), 0)
            width = min(opener.indent, first)
            lines = [_without_columns(line, width) for line in lines]
        return Block(
            first=opener.line,
            end=end,
            language=opener.language,
            code="\n".join(lines),
            closed=closed,
            inside=bool(opener.quotes or opener.indent),
        )

    def _by_literals(self, opener: _Opener, block: Block) -> Block:
        """Return the block, with another end if its literals or its syntax require one."""
        has_inline = opener.fence in block.code
        if not has_inline and not _MAY_SPAN_LINES.search(block.code):
            return block
        reading = read(block.code, self._language)
        if has_inline and self._language == "python" and not reading.whole:
            for cut in self._inline(opener, block):
                if parses(cut.code) and not parses(cut.code + opener.fence):  # not in a comment
                    return cut
        elif has_inline and not block.closed:
            self._tries -= block.end == len(self.lines)  # each such block reads all lines behind it
            return next(self._inline(opener, block), block) if self._tries >= 0 else block
        return block if reading.until is None else self._after(reading.until, opener, block)

    def _inline(self, opener: _Opener, block: Block) -> Iterator[Block]:
        """Yield variants of the block that end at a fence at the end of a line of code."""
        tries = 0
        for number in range(block.first + 1, min(block.end, len(self.lines))):
            before, found, rest = self.lines[number].rpartition(opener.fence)
            code = before.rstrip(opener.fence)
            is_code = found and code.strip(_BLANK + opener.fence) and _ENDS.fullmatch(rest)
            if is_code and tries < MAX_TRIES:
                tries += 1
                yield self._cut(opener, number, number + 1, last=code)

    def _after(self, until: str | None, opener: _Opener, block: Block) -> Block:
        """Extend the block to the first closing fence outside its literals; unchanged without one."""
        longer = block
        while until is not None and self._tries > 0:
            self._tries -= 1
            rest = range(longer.end - longer.closed, len(self.lines))
            literal_end = next((at for at in rest if until in self.lines[at]), None)
            if literal_end is None:
                return block
            longer = self._block(opener, literal_end + 1, nesting=True)
            reading = read(longer.code, self._language)
            if reading.whole and (longer.closed or self._language == "python"):
                return longer
            until = reading.until
        return block


def opener_of(line: str, number: int) -> _Opener | None:
    """Return the fence that opens a block on this line, else None."""
    if "```" not in line and "~~~" not in line:
        return None
    found = _OPENER.match(line)
    if found is None or (found[2][0] == "`" and "`" in found[3]):
        return None
    containers, fence, info = found.groups()
    _, quote, indent = containers.rpartition(">")
    columns = _columns(indent.removeprefix(" ") if quote else indent)
    return _Opener(number, fence, containers.count(">"), columns, language_of(info))


def _without_quotes(line: str, quotes: int) -> str | None:
    """Return a line without `quotes` block quote marks; None if it has fewer."""
    at = 0
    for _ in range(quotes):
        mark = _QUOTE.match(line, at)
        if mark is None:
            return None
        at = mark.end()
    return line[at:]


def _columns(blanks: str) -> int:
    return len(blanks.expandtabs(_TAB))


def _indent(line: str) -> int:
    return _columns(line[: len(line) - len(line.lstrip(" \t"))])


def _without_columns(line: str, width: int) -> str:
    """Remove up to `width` columns of blanks from a line's start."""
    columns = 0
    for at, character in enumerate(line):
        if columns >= width or character not in " \t":
            return " " * (columns - width) + line[at:]
        columns += 1 if character == " " else _TAB - columns % _TAB
    return ""


_SPELLINGS = {
    "python": ("python", "pypy", "ipython", "cpython"),
    "cpp": ("g++", "gnu++"),
    "javascript": ("cjs", "ecmascript"),
    "bash": ("zsh",),
}
"""Names of languages in info strings only."""
_LANGUAGE = {
    **{suffix.removeprefix("."): language for suffix, language in EXTENSIONS.items()},
    **{name: one.name for one in LANGUAGES.values() for name in (one.name, *one.aliases)},
    **{name: language for language, names in _SPELLINGS.items() for name in names},
}
_SAYS_NOTHING = {
    "answer", "code", "codeblock", "file", "filename", "final", "lang", "language", "name", "path",
    "program", "snippet", "solution", "source", "title",
}  # fmt: skip
"""Words that are not languages; a later word may be one."""

_SEPARATORS = re.compile(r"[\s,;:{}()\[\]<>=\"'|`]+")
_PREFIX = re.compile(r"(?:language|lang)-|\.")
_VERSION = re.compile(r"[\d.]*$")
_LOOKED_AT = 200
"""Maximum number of characters read of an info string."""


def language_of(info: str) -> str:
    """Return our name of a known language, the word itself for any other, "" without one."""
    return _language_of(info[:_LOOKED_AT])


@lru_cache(maxsize=1024)
def _language_of(info: str) -> str:
    for word in _SEPARATORS.split(info.lower()):
        word = _PREFIX.sub("", word, count=1) if _PREFIX.match(word) else word
        name = _VERSION.sub("", word, count=1)
        if name[:1].isalpha() and name not in _SAYS_NOTHING:
            extension = name.rpartition(".")[2]
            return _LANGUAGE.get(name) or _LANGUAGE.get(extension) or word
    return ""
