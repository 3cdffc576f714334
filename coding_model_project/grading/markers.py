"""The start and end of an answer by `</think>`, `[BEGIN]` and `[DONE]`, except those inside a program.

- An answer starts after the last `</think>`. One in quotes (`"</think>"`) is text, and so is one in a
  block that parses as Python, where it is in a literal or a comment. After the end of the reasoning, one
  in any other closed block, such as a program's output, is text too.
- After an unclosed `<think>`, outside quotes and blocks, there is no answer.
- `[BEGIN]` at the start of a line, outside blocks, begins a program; the next `[DONE]` ends it.
- Otherwise `[DONE]` counts only if the prompt asks for bare code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from coding_model_project.grading.fences import Block, Fences, opener_of
from coding_model_project.grading.literals import parses

MAX_MARKERS = 8
"""Maximum number of final `</think>` that may be text of a program, and of ends tried."""

_QUOTES = ("'", '"', "`")
_THINK = re.compile(r"<think>")
_THOUGHT = re.compile(r"</think>")
MARKERS = ("think>", "[BEGIN]", "[DONE]")
"""Substrings of all markers; a completion without any of them has no markers."""
_BEGIN = re.compile(r"^[ \t]*\[BEGIN\](?:[ \t\r]*(?:\n|\Z)|(?=[ \t]*[A-Za-z@#]))", re.M)
_DONE_FIRST = re.compile(r"^[ \t]*\[DONE\](?=\s|\Z)", re.M)
_DONE = re.compile(r"(?<![\"'])\[DONE\]")


def answer_of(completion: str, language: str, *, bare: bool = False) -> str | None:
    """Return a completion without its reasoning; None if the reasoning does not end.

    Args:
        bare: whether the prompt asked for bare code, which starts at the first position (the beginning,
            or after a `</think>`) from which the rest parses as Python.
    """
    if "think>" not in completion:
        return completion
    searched = _without_marked_literals(completion, language)
    ends = [found.end() for found in _THOUGHT.finditer(searched) if not _quoted(found)]
    start = ends[-MAX_MARKERS - 1] if len(ends) > MAX_MARKERS else 0
    ends = ends[-MAX_MARKERS:]
    if bare and language == "python":
        readable = (completion[end:] for end in (start, *ends))
        if (program := next(filter(parses, readable), None)) is not None:
            return program
    while (end := _first_real(searched, start, ends, language)) is not None:
        start, ends = end, [later for later in ends if later > end]
    return None if _thinks(searched[start:], language) else completion[start:]


def _without_marked_literals(completion: str, language: str) -> str:
    """Replace the markers in a program after `[BEGIN]` that parses as Python by text of equal length."""
    *_, begin = [0, *(found.end() for found in _BEGIN.finditer(completion))]
    program = until_done(completion[begin:], language) if begin and language == "python" else ""
    if "think>" not in program or not parses(program):
        return completion
    end = begin + len(program)
    return completion[:begin] + program.replace("think>", "think ") + completion[end:]


def marked_program(answer: str, language: str) -> str | None:
    """Return the text between `[BEGIN]` and `[DONE]`; None without a `[BEGIN]`."""
    if "[BEGIN]" not in answer:
        return None
    begins = {found.start(): found.end() for found in _BEGIN.finditer(answer)}
    located = _located(answer, begins, language)
    first = next((at for at, _, block, _ in located if block is None), None)
    if first is None or _in_literal(answer, first, begins[first], language):
        return None
    return until_done(answer[begins[first] :], language)


def until_done(text: str, language: str) -> str:
    """Cut a program at `[DONE]`, which stands on its own line or after the program's last line.

    A Python program ends at the first one up to which it parses, so that a literal may hold the marker.
    """
    if "[DONE]" not in text:
        return text
    own_line = [found.start() for found in islice(_DONE_FIRST.finditer(text), MAX_MARKERS)]
    inline = [found.start() for found in islice(_DONE.finditer(text), MAX_MARKERS)]
    last = len(text.rstrip()) - len("[DONE]")
    is_last = text.startswith("[DONE]", last)
    if language == "python":
        readable = (text[:end] for end in own_line if parses(text[:end]))
        if (program := next(readable, None)) is not None:
            return program
        if parses(text) and not (is_last and not _in_literal(text, last, len(text), language)):
            return text
        if not own_line and not is_last:
            return next((text[:end] for end in inline if parses(text[:end])), text)
    if own_line:
        return text[: own_line[0]]
    return text[:last] if is_last else text


def _in_literal(text: str, start: int, end: int, language: str) -> bool:
    """Return whether a range is in a literal or comment: Python parses the text with other content."""
    return language == "python" and parses(f"{text[:start]}${text[end:]}")


def without_marker_lines(code: str) -> str:
    """Remove a `[BEGIN]` before the first line of code and a `[DONE]` after the last."""
    stripped = code.strip()
    if stripped.startswith("[BEGIN]\n"):
        code = code[code.index("[BEGIN]") + len("[BEGIN]\n") :]
    if stripped.endswith("\n[DONE]"):
        code = code[: code.rindex("[DONE]")]
    return code


def _quoted(found: re.Match[str]) -> bool:
    before = found.string[found.start() - 1 : found.start()]
    after = found.string[found.end() : found.end() + 1]
    return before in _QUOTES and before == after


def _first_real(completion: str, start: int, ends: list[int], language: str) -> int | None:
    """Return the first of these ends of reasoning that is not text of a program."""
    if not ends:
        return None
    rest = completion[start:]
    opened = [at.start() for at in _THINK.finditer(rest, 0, ends[-1] - start) if not _quoted(at)]
    closed = {end - start - 1 for end in ends}
    thinking = False
    for at, line, block, fences in _located(rest, sorted([*opened, *closed]), language):
        if at not in closed:
            thinking = thinking or block is None
        elif block is None or not _is_text(block, line, fences, language, thinking=thinking):
            return start + at + 1
    return None


def _is_text(block: Block, line: int, fences: Fences, language: str, *, thinking: bool) -> bool:
    """Return whether a `</think>` belongs to the text of its block."""
    if language == "python" and block.language in ("", language):
        if parses(block.code):
            return True
        if block.language == language:
            return False
    after = fences.lines[line + 1 : block.end - 1]
    return block.closed and not thinking and not any(opener_of(one, 0) for one in after)


def _thinks(answer: str, language: str) -> bool:
    """Return whether an answer has more reasoning that does not end."""
    if "<think>" not in answer:
        return False
    opened = (found.start() for found in _THINK.finditer(answer) if not _quoted(found))
    return any(block is None for _, _, block, _ in _located(answer, opened, language))


def _located(
    text: str, positions: Iterable[int], language: str
) -> Iterator[tuple[int, int, Block | None, Fences]]:
    """Yield each position, in order, with its line and its block."""
    fences = Fences(text, language)
    blocks = fences.outlines()
    block = next(blocks, None)
    line, line_end = 0, len(fences.lines[0])
    for position in positions:
        while position > line_end:
            line += 1
            line_end += 1 + len(fences.lines[line])
        while block is not None and block.end <= line:
            block = next(blocks, None)
        inside = block is not None and block.first <= line
        yield position, line, block if inside else None, fences
