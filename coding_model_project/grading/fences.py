"""The fenced code blocks of a text, as CommonMark has them and models write them. One pass over lines.

- A fence is three or more backticks or tildes on a line of their own. The info string after backticks
  holds no backtick. A block ends at a fence of the same character, at least as long, with nothing
  after it and at most three columns further in than its opener; else where the text ends.
- Openers may be indented by any amount and stand in lists and block quotes, `- ` and `> ` before them.
  What a block quote holds ends with the quote.
- A fence inside a literal of the code is text: a block that ends within a triple-quoted string, a
  here-document or a raw string goes on to the first closing fence at which it does not.
- A block that was never closed ends at the next opener that cannot be text of it: in a block tagged
  with the language that is looked for, any with a tag; in one without a tag, one of that language. In
  blocks of other languages (`markdown`) such openers count on request.
- A Python block that reads only up to a fence at the end of a line (`print(1)```) ends there; so does
  a block in any language that nothing else ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from coding_model_project.grading.info_strings import language_of
from coding_model_project.grading.literals import parses, read

MAX_TRIES = 8
"""Ends that are tried for a block at fences after code; and, in all of a text, after literals."""

_TAB = 4
_BLANK = " \t\r"
_LIST_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?=[ \t])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block."""

    first: int
    """The line of its opening fence."""
    end: int
    """The line after its last one."""
    language: str
    """As `language_of` its info string."""
    code: str
    closed: bool
    """False if the text ends before the block does: it was probably cut off."""
    inside: bool
    """In a list, a block quote, or indented."""


@dataclass(frozen=True, slots=True)
class _Opener:
    line: int
    mark: str
    length: int
    quotes: int
    indent: int
    language: str

    def is_closed_by(self, line: str) -> bool:
        """Return true for this fence's closing line, given without the marks of block quotes."""
        stripped = line.strip(_BLANK)
        return (
            stripped.startswith(self.mark)
            and len(stripped) >= self.length
            and not stripped.strip(self.mark)
            and _columns(line) <= self.indent + 3
        )


class Fences:
    """The lines of a text and the blocks in them.

    Args:
        language: of the programs that are looked for; their literals are respected.
    """

    def __init__(self, text: str, language: str) -> None:
        self.lines = text.split("\n")
        self._language = language
        self._tries = MAX_TRIES

    def blocks(self, *, inside_others: bool = False) -> Iterator[Block]:
        """All blocks, in order; those of the language, or of none, with their literals.

        Args:
            inside_others: look for blocks of the language inside blocks of other languages.
        """
        at = 0
        while (opener := self._next_opener(at)) is not None:
            ours = opener.language in ("", self._language)
            block = self._block(opener, opener.line + 1, nesting=ours or inside_others)
            block = self._by_literals(opener, block) if ours else block
            yield block
            at = block.end

    def outlines(self) -> Iterator[Block]:
        """All blocks by their fences alone, which no literal of the code changes."""
        at = 0
        while (opener := self._next_opener(at)) is not None:
            block = self._block(opener, opener.line + 1, nesting=False)
            yield block
            at = block.end

    def _next_opener(self, at: int) -> _Opener | None:
        found = (opener_of(self.lines[line], line) for line in range(at, len(self.lines)))
        return next((opener for opener in found if opener is not None), None)

    def _block(self, opener: _Opener, at: int, *, nesting: bool) -> Block:
        """The block up to the first line from this one on that ends it."""
        for number in range(at, len(self.lines)):
            line = self.lines[number]
            if opener.quotes:
                rest = _without_quotes(line, opener.quotes)
                if rest is None:
                    return self._cut(opener, number, number)
                line = rest
            if opener.is_closed_by(line):
                return self._cut(opener, number, number + 1)
            if nesting and self._opens_another(opener, line):
                return self._cut(opener, number, number, closed=False)
        return self._cut(opener, len(self.lines), len(self.lines), closed=False)

    def _opens_another(self, opener: _Opener, line: str) -> bool:
        other = opener_of(line, 0)
        if other is None:
            return False
        tagged = other.language != "" and other.mark == "`"  # "~~~x" is an expression
        return other.language == self._language or (tagged and opener.language == self._language)

    def _cut(
        self,
        opener: _Opener,
        code_end: int,
        end: int,
        *,
        closed: bool = True,
        last: str | None = None,
    ) -> Block:
        """The block of the lines before `code_end`, and a last one in part."""
        lines = self.lines[opener.line + 1 : code_end]
        if last is not None:
            lines.append(last)
        elif code_end < len(self.lines):
            lines.append("")  # the code ends with its last line's newline
        if opener.quotes:
            lines = [_without_quotes(line, opener.quotes) or "" for line in lines]
        if opener.indent:
            first = next((_columns(line) for line in lines if line.strip(_BLANK)), 0)
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
        """The block with another end, if its literals or its syntax say so."""
        fence = opener.mark * opener.length
        has_inline = fence in block.code
        if not has_inline and not _MAY_SPAN_LINES.search(block.code):
            return block
        reading = read(block.code, self._language)
        if has_inline and self._language == "python" and not reading.whole:
            for cut in self._inline(opener, block):
                if parses(cut.code) and not parses(cut.code + fence):  # not in a comment
                    return cut
        elif has_inline and not block.closed:
            return next(self._inline(opener, block), block)
        return block if reading.until is None else self._after(reading.until, opener, block)

    def _inline(self, opener: _Opener, block: Block) -> Iterator[Block]:
        """The block as it would be if it ended at a fence at the end of a line of code."""
        fence, tries = opener.mark * opener.length, 0
        for number in range(block.first + 1, min(block.end, len(self.lines))):
            line = self.lines[number].rstrip(_BLANK)
            if tries < MAX_TRIES and line.endswith(fence) and line.strip(_BLANK + opener.mark):
                tries += 1
                yield self._cut(opener, number, number + 1, last=line.rstrip(opener.mark))

    def _after(self, until: str | None, opener: _Opener, block: Block) -> Block:
        """The block up to the first closing fence outside its literals; as it is if there is none."""
        longer = block
        while until is not None and self._tries:
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


_MAY_SPAN_LINES = re.compile(r"'''|\"\"\"|<<|R\"")


def opener_of(line: str, number: int) -> _Opener | None:
    """The fence that a line opens a block with."""
    if "```" not in line and "~~~" not in line:
        return None
    at, quotes, indent = _inside(line)
    mark = line[at : at + 1]
    if mark not in ("`", "~"):
        return None
    body = line[at:]
    info = body.lstrip(mark)
    length = len(body) - len(info)
    if length < 3 or (mark == "`" and "`" in info):
        return None
    return _Opener(number, mark, length, quotes, indent, language_of(info))


def _inside(line: str) -> tuple[int, int, int]:
    """Where a line starts behind quotes and list items, how many quotes, and the columns of the rest."""
    at = quotes = columns = 0
    while at < len(line):
        character = line[at]
        if character == " ":
            at, columns = at + 1, columns + 1
        elif character == "\t":
            at, columns = at + 1, columns + _TAB - columns % _TAB
        elif character == ">":
            at, quotes, columns = at + 1, quotes + 1, 0
            at += line[at : at + 1] == " "
        elif item := _LIST_ITEM.match(line, at):
            columns += item.end() - at
            at = item.end()
        else:
            break
    return at, quotes, columns


def _without_quotes(line: str, quotes: int) -> str | None:
    """A line's rest behind so many marks of block quotes; None if it has fewer."""
    at = 0
    for _ in range(quotes):
        while line[at : at + 1] in (" ", "\t"):
            at += 1
        if line[at : at + 1] != ">":
            return None
        at += 1
        at += line[at : at + 1] == " "
    return line[at:]


def _columns(line: str) -> int:
    columns = 0
    for character in line:
        if character == " ":
            columns += 1
        elif character == "\t":
            columns += _TAB - columns % _TAB
        else:
            break
    return columns


def _without_columns(line: str, width: int) -> str:
    """A line without so many columns of blank at its start, or as many as it has."""
    columns = 0
    for at, character in enumerate(line):
        if columns >= width or character not in " \t":
            return " " * (columns - width) + line[at:]
        columns += 1 if character == " " else _TAB - columns % _TAB
    return ""
