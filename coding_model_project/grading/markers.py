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

_THINK = re.compile(r"</?think>")
_QUOTED_THINK = re.compile(r"(['\"`])(</?think)>(?=\1)")
_BEGIN = re.compile(r"^[ \t]*\[BEGIN\](?:[ \t\r]*(?:\n|\Z)|(?=[ \t]*[A-Za-z@#]))", re.M)
_DONE_FIRST = re.compile(r"^[ \t]*\[DONE\](?=\s|\Z)", re.M)
_DONE = re.compile(r"(?<![\"'])\[DONE\]")
_AROUND_CODE = re.compile(r"\A\s*\[BEGIN\]\n|(?<=\n)\[DONE\]\s*\Z")


def answer_of(completion: str, language: str, *, bare: bool = False) -> str | None:
    """Return a completion without its reasoning; None if the reasoning does not end.

    Args:
        bare: whether the prompt asked for bare code, which starts at the first position (the beginning,
            or after a `</think>`) from which the rest parses as Python.
    """
    if "think>" not in completion:
        return completion
    searched = _without_literals(completion, language)
    ends = (found.end() for found in _THINK.finditer(searched) if found[0] == "</think>")
    starts = [0, *ends][-MAX_MARKERS - 1 :]
    if bare and language == "python":
        for start in starts:
            if parses(completion[start:]):
                return completion[start:]
    start = starts[0]
    while True:
        end, thinking = _end_of_reasoning(searched[start:], language)
        if not end:
            return None if thinking else completion[start:]
        start += end


def _without_literals(completion: str, language: str) -> str:
    """Replace markers by text of equal length in quotes and in a program after `[BEGIN]` that parses."""
    text = _QUOTED_THINK.sub(r"\1\2 ", completion)
    *_, begin = [0, *(found.end() for found in _BEGIN.finditer(completion))]
    program = until_done(completion[begin:], language) if begin and language == "python" else ""
    if "think>" not in program or not parses(program):
        return text
    end = begin + len(program)
    return text[:begin] + text[begin:end].replace("think>", "think ") + text[end:]


def _end_of_reasoning(text: str, language: str) -> tuple[int, bool]:
    """Return where reasoning first ends, 0 without an end; and whether it began before."""
    fences, thinking = Fences(text, language), False
    for found, line, block in _located(fences, _THINK.finditer(text)):
        if found[0] == "<think>":
            thinking = thinking or block is None
        elif block is None or not _is_text(block, line, fences, language, thinking=thinking):
            return found.end(), thinking
    return 0, thinking


def _is_text(block: Block, line: int, fences: Fences, language: str, *, thinking: bool) -> bool:
    """Return whether a `</think>` belongs to the text of its block."""
    if language == "python" and block.language in ("", language):
        if parses(block.code):
            return True
        if block.language == language:
            return False
    after = fences.lines[line + 1 : block.end - 1]
    return block.closed and not thinking and not any(opener_of(one, 0) for one in after)


def marked_program(answer: str, language: str) -> str | None:
    """Return the text between `[BEGIN]` and `[DONE]`; None without a `[BEGIN]`."""
    if "[BEGIN]" not in answer:
        return None
    located = _located(Fences(answer, language), _BEGIN.finditer(answer))
    begin = next((found for found, _, block in located if block is None), None)
    if begin is None or _in_literal(answer, begin.start(), begin.end(), language):
        return None
    return until_done(answer[begin.end() :], language)


def until_done(text: str, language: str) -> str:
    """Cut a program at `[DONE]`, which stands on its own line or after the program's last line.

    A Python program ends at the first one up to which it parses, so that a literal may hold the marker.
    """
    if "[DONE]" not in text:
        return text
    own_line = [found.start() for found in islice(_DONE_FIRST.finditer(text), MAX_MARKERS)]
    last = len(text.rstrip()) - len("[DONE]")
    is_last = text.startswith("[DONE]", last)
    if language == "python":
        for end in own_line:
            if parses(text[:end]):
                return text[:end]
        if parses(text) and not (is_last and not _in_literal(text, last, len(text), language)):
            return text
        if not own_line and not is_last:
            inline = (found.start() for found in islice(_DONE.finditer(text), MAX_MARKERS))
            return next((text[:end] for end in inline if parses(text[:end])), text)
    if own_line:
        return text[: own_line[0]]
    return text[:last] if is_last else text


def _in_literal(text: str, start: int, end: int, language: str) -> bool:
    """Return whether a range is in a literal or comment: Python parses the text with other content."""
    return language == "python" and parses(f"{text[:start]}${text[end:]}")


def without_marker_lines(code: str) -> str:
    """Remove a `[BEGIN]` before the first line of code and a `[DONE]` after the last."""
    return _AROUND_CODE.sub("", code)


def _located(
    fences: Fences, markers: Iterable[re.Match[str]]
) -> Iterator[tuple[re.Match[str], int, Block | None]]:
    """Yield each marker, in order, with its line and its block."""
    blocks = fences.blocks(outlines=True)
    block = next(blocks, None)
    line = at = 0
    for found in markers:
        line += found.string.count("\n", at, found.start())
        at = found.start()
        while block is not None and block.end <= line:
            block = next(blocks, None)
        yield found, line, block if block is not None and block.first <= line else None
