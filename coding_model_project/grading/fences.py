"""A parser of fenced code blocks, by CommonMark and the habits of models, in one pass over lines.

- A fence is three or more backticks or tildes on their own line. The info string after backticks holds
  no backtick. A block ends at a fence of the same character that is at least as long, has nothing after
  it (except tokens and tags that end a turn: `</s>`, `<|im_end|>`, `</answer>`) and is indented at most
  three columns more than its opener; else at the end of the text.
- Openers may have any indentation and follow `- ` and `> ` in lists and block quotes. A block inside a
  block quote ends with the quote.
- A fence inside a literal of the code is text: a block that would end within a triple-quoted string, a
  here-document or a raw string extends to the first closing fence outside of one.
- An unclosed block ends at the next opener that cannot belong to its text: for a block tagged with the
  target language, any tagged opener; for an untagged block, one of that language. In blocks of other
  languages (`markdown`) such openers count on request.
- A Python block that parses only up to a fence at the end of a line (`print(1)```) ends there; so does
  a block in any language that has no other end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from coding_model_project.grading.info_strings import language_of
from coding_model_project.grading.literals import parses, read

MAX_TRIES = 8
"""Maximum number of ends tried at fences after code, per block, and after literals, per text."""

_TAB = 4
_BLANK = " \t\r"
_LIST_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?=[ \t])")


_ENDS = re.compile(
    r"(?:\s*(?:<[|\uff5c][^<>\s]{1,60}[|\uff5c]>|</(?!think>)[A-Za-z][\w.:-]{0,40}>|<(?:eos|end_of_\w{1,20})>"
    r"|\[/?[A-Z]{2,10}\]))+"
)
"""Tokens and tags that models write directly behind a fence: ends of a turn, of an answer."""


_LAST_TOKEN = re.compile(r"<[|\uff5c][^<>\s]{1,60}[|\uff5c]>|</s>|<(?:eos|end_of_turn)>")


def without_end_tokens(text: str) -> str:
    """Return a completion without the special tokens at its end, which some servers leave there."""
    for _ in range(MAX_TRIES):
        stripped = text.rstrip()
        start = stripped.rfind("<", -64)
        if start < 0 or not _LAST_TOKEN.fullmatch(stripped, start):
            break
        text = stripped[:start]
    return text


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
    mark: str
    length: int
    quotes: int
    indent: int
    language: str

    def is_closed_by(self, line: str) -> bool:
        """Return whether a line, without block quote marks, closes this fence."""
        stripped = line.strip(_BLANK)
        rest = stripped.lstrip(self.mark)
        return (
            len(stripped) - len(rest) >= self.length
            and (not rest or _ENDS.fullmatch(rest) is not None)
            and _columns(line) <= self.indent + 3
        )


class Fences:
    """The lines of a text and the blocks in them.

    Args:
        language: the target language, whose literals are respected.
    """

    def __init__(self, text: str, language: str) -> None:
        self.lines = text.split("\n")
        self._language = language
        self._tries = MAX_TRIES

    def blocks(self, *, inside_others: bool = False) -> Iterator[Block]:
        """Yield all blocks in order; those of the language and untagged ones with regard to literals.

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
        """Yield all blocks by their fences alone, without regard to literals."""
        at = 0
        while (opener := self._next_opener(at)) is not None:
            block = self._block(opener, opener.line + 1, nesting=False)
            yield block
            at = block.end

    def _next_opener(self, at: int) -> _Opener | None:
        found = (opener_of(self.lines[line], line) for line in range(at, len(self.lines)))
        return next((opener for opener in found if opener is not None), None)

    def _block(self, opener: _Opener, at: int, *, nesting: bool) -> Block:
        """Return the block up to the first line from `at` on that ends it."""
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
        """Return the block of the lines before `code_end`, and optionally a part of a last line."""
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
        """Return the block, with another end if its literals or its syntax require one."""
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
        """Yield variants of the block that end at a fence at the end of a line of code."""
        fence, tries = opener.mark * opener.length, 0
        for number in range(block.first + 1, min(block.end, len(self.lines))):
            line = self.lines[number].rstrip(_BLANK)
            before, found, rest = line.rpartition(fence)
            if found and rest and _ENDS.fullmatch(rest):
                line = before + fence
            if tries < MAX_TRIES and line.endswith(fence) and line.strip(_BLANK + opener.mark):
                tries += 1
                yield self._cut(opener, number, number + 1, last=line.rstrip(opener.mark))

    def _after(self, until: str | None, opener: _Opener, block: Block) -> Block:
        """Extend the block to the first closing fence outside its literals; unchanged without one."""
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
    """Return the fence that opens a block on this line, else None."""
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
    """Return a line's start after quotes and list items, the number of quotes, and the indentation."""
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
    """Return a line without `quotes` block quote marks; None if it has fewer."""
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
    """Remove up to `width` columns of blanks from a line's start."""
    columns = 0
    for at, character in enumerate(line):
        if columns >= width or character not in " \t":
            return " " * (columns - width) + line[at:]
        columns += 1 if character == " " else _TAB - columns % _TAB
    return ""
