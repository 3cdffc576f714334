r"""Extraction of the final answer from a text about maths, by the first rule that matches:

1. The content of the last closed `\boxed{…}` (or `\fbox{…}`).
2. The text after `####` on the last line that starts with it, if it is a number (GSM8K's form; models
   also write headings with `####`).
3. The text after the last "answer is" or "answer:" on its line, else the last non-blank line.

Each rule takes the last answer of a text, so listing several gains nothing. Rules 1 and 2 are the forms
of MATH (Hendrycks et al. 2021) and GSM8K (Cobbe et al. 2021).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from coding_model_project.grading.maths.notation import BLANK, GROUP

MAX_CHARACTERS = 500
"""Maximum length of an answer; the longest in MATH has 159."""

_MAX_BOXES = 64
"""Maximum number of boxes that are tried; all later ones are not closed."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=[{\s\d])")
_NUMBER = re.compile(
    rf"[-+]?(?:\\?\$|[€£])?[-+]?\d[\d,.]*(?:{GROUP}\d{{3}})*(?:\.\d+)?(?:/\d+)?"
    rf"(?:{BLANK})*(?:\\?[%％])?\.?"
)
_STATED = re.compile(r"(?i)\banswer\s*(?:is\b\s*:?|:|=)")


class AnswerRule(StrEnum):
    """The rule that found an answer."""

    boxed = "boxed"
    hashes = "hashes"
    sentence = "sentence"
    """A line of text that contains the number or formula."""
    nothing = "nothing"


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """An answer, and the rule that found it."""

    text: str
    rule: AnswerRule

    @property
    def is_cut_off(self) -> bool:
        r"""True if it ends in a box that is not closed: `\boxed{1` may be the start of 12."""
        starts = [match.end() for match in _BOX.finditer(self.text)]
        return bool(starts) and _braced(self.text[starts[-1] :]) is None


def final_answer(text: str) -> FinalAnswer | None:
    """Return the final answer of a text; None without one of at most `MAX_CHARACTERS`."""
    found = _boxed(text) or _after_hashes(text) or _last_sentence(text)
    return found if found and len(found.text) <= MAX_CHARACTERS else None


def _boxed(text: str) -> FinalAnswer | None:
    """Return the content of the last closed box.

    The search reads at most the length of an answer after each of the last boxes.
    """
    starts = deque((match.end() for match in _BOX.finditer(text)), maxlen=_MAX_BOXES)
    for start in reversed(starts):
        content = _braced(text[start : start + MAX_CHARACTERS + 2])
        if content is not None and content.strip():
            return FinalAnswer(content.strip(), AnswerRule.boxed)
    return None


def _braced(text: str) -> str | None:
    r"""Return the content of the braces at the start of a text, or its first word (`\boxed 3`)."""
    if not text.startswith("{"):
        word = text.split(maxsplit=1)[0] if text.split() else ""
        return word.rstrip("$.,")
    depth = 0
    for index, sign in enumerate(text):
        if sign in "{}" and text[index - 1 : index] != "\\":
            depth += 1 if sign == "{" else -1
        if depth == 0:
            return text[1:index]
    return None


def _after_hashes(text: str) -> FinalAnswer | None:
    for line in reversed(text.splitlines()):
        mark, _, rest = line.strip().partition("####")
        if not mark and _NUMBER.fullmatch(rest.strip()):
            return FinalAnswer(rest.strip(), AnswerRule.hashes)
    return None


def _last_sentence(text: str) -> FinalAnswer | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        *before, rest = _STATED.split(line)
        if before and (answer := _unmarked(rest)):
            return FinalAnswer(answer, AnswerRule.sentence)
    return FinalAnswer(lines[-1], AnswerRule.sentence) if lines else None


def _unmarked(text: str) -> str:
    """Return an answer without Markdown's emphasis around it, which may end before a full stop."""
    text = text.strip(" *")
    inner = text.removesuffix(".")
    return inner.rstrip(" *") if inner.endswith("*") else text
