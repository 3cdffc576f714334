r"""Extraction of the final answer from a text about maths, by the first rule that matches:

1. The content of the last closed `\boxed{…}` (or `\fbox{…}`).
2. The text after `####` on the last line that starts with it, if it is a number (GSM8K's form; models
   also write headings with `####`).
3. The text after the last "answer is" or "answer:" on its line, else the last non-blank line.

Each rule takes the last answer of a text, so listing several gains nothing. Rules 1 and 2 are the forms
of MATH (Hendrycks et al. 2021) and GSM8K (Cobbe et al. 2021).

Then come the notations of one value: percent signs, groups of digits, number bases, moduli and words in
`\text`. The publishers of MATH remove such signs before they compare. Here a sign that means another
value stays: `2516_9` is not `2516_8`, and `7_8` is not 7.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

_IN_TEXT = r"\\(?:text(?:bf|rm|it|sf|tt|normal)?|math(?:rm|bf|it|sf)|mbox|operatorname|bf|rm)\s*"
BLANK = (
    r"(?:\\[,;:!]\ ?|\\\ |\\(?:thin|med|thick)space(?![A-Za-z])\ ?"
    r"|[ ~\u00a0\u2004-\u200a\u202f\u205f])"
)
"""A narrow blank of LaTeX or Unicode. Wide ones, such as `\\quad`, separate values."""

GROUP = rf"(?:{BLANK}|\{{(?:{BLANK}|,)\}}|,\\!)"
"""The sign between groups of three digits, apart from a plain comma."""

_PERCENT = rf"(?:\\?[%％]|{_IN_TEXT}\{{\s*(?:\\?[%％]|per\s?cent)\s*\}}|per\s?cent\b)"
_REWRITTEN = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (rf"(?i)^\s*{_IN_TEXT}\{{[^{{}}]*\banswer(?:\s+is)?\s*:?\s*\}}\s*:?", ""),
        (rf"(?<=[A-Za-z]){_IN_TEXT}\{{\s*([ei])\s*\}}", r" \1"),
        (rf"{_IN_TEXT}\{{\s*([ei])\s*\}}", r"\1"),
        (rf"{_IN_TEXT}\{{\s*((?:arc)?(?:sin|cos|tan)|log|ln|exp)\s*\}}", r"\\\1 "),
        (rf"{_IN_TEXT}\{{\s*(?:\\?\$|[€£¥])\s*\}}|\\(?:pounds|euro|yen)\b|[€£¥¢₹°]", ""),
        (rf"(?i)(?<=[\d}}])(?:\s|{BLANK})*{_PERCENT}(?!\s*\.?\d)", ""),
        (
            r"(\\(?:sin|cos|tan|cot|sec|csc)\s*[({]?\s*)(\d+)\s*\^\s*\{?\s*\\circ\s*\}?",
            r"\1{\\frac{\2\\pi}{180}}",
        ),
        (r"(\\equiv|≡)([^\\]*)\\b?mod\b\s*\{?(\w+)\}?", r"\1\2\\pmod{\3}"),
    )
)
"""Patterns of one sign, and its replacement. Of currencies, math-verify knows the dollar."""

_GROUPED = re.compile(
    rf"(?<![\d.,_^])[1-9]\d{{0,2}}(?P<by>{GROUP})\d{{3}}(?:(?P=by)\d{{3}})*(?!\d|{GROUP}\d|\s*/)"
)
_DIGIT = re.compile(r"\d")
_NOT_DIGITS = re.compile(r"\D")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\s*\{\s*(\d{1,30})\s*\}")
_WRAPPED = re.compile(rf"(?:{_IN_TEXT})\{{([^{{}}]*)\}}")
_CAPITALS = re.compile("[A-Z]{2,}")

_BASES = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
)
_BASED = re.compile(
    rf"(?<![\w\\])\(?([0-9A-F.]*\d[0-9A-F.]*)\)?\s*_\s*(?:{_IN_TEXT})?"
    rf"\{{?\s*(?:{_IN_TEXT}\{{)?\(?\s*([2-9]|[12]\d|3[0-6]|{'|'.join(_BASES)})(?!\w)"
)
_MODULUS = re.compile(
    r"\s*(?:\\pmod\s*(?:\{([^{}]*)\}|(\w))"
    r"|(?:\\text\s*\{)?\s*\(\s*(?:\\[bp]?mod|mod)\b\s*\{?([^{}()]*)\}?\s*\)\}?)"
)
_CONGRUENT = re.compile(r"^\s*\\?[A-Za-z]\w*\s*(?:\\equiv|≡|=)")


def normal(text: str) -> str:
    """Return an answer in one notation, without its modulus."""
    return _normal_and_modulus(text)[0]


def _normal_and_modulus(text: str) -> tuple[str, str | None]:
    for pattern, by in _REWRITTEN:
        text = pattern.sub(by, text)
    text = _GROUPED.sub(lambda number: _NOT_DIGITS.sub("", number[0]), text)
    text = _REPEATING.sub(_fraction, text).strip().strip("*").rstrip(",;")
    found = _MODULUS.search(text)
    if not found:
        return text, None
    modulus = next(part for part in found.groups() if part is not None)
    rest = _CONGRUENT.sub("", text[: found.start()] + text[found.end() :])
    return rest.strip(), modulus.strip()


def compared(gold: str, given: str, *, is_formula: bool) -> bool | None:
    """Compare what math-verify cannot: words, bases and moduli. Return None if these do not decide.

    Args:
        is_formula: whether `given` holds nothing besides the answer.
    """
    (gold, modulus), (given, other) = _normal_and_modulus(gold), _normal_and_modulus(given)
    if modulus and other and modulus != other:
        return False
    ours, theirs = _numerals(gold), _numerals(given)
    if ours and not theirs:  # the statement asks for an answer in that base
        return len(ours) == 1 and ours[0][0] == _words(given).strip("$")
    if theirs and (not is_formula or _words(gold) != _words(given)):
        alone = not any(_DIGIT.search(_BASED.sub("", text)) for text in (gold, given))
        return alone and len(ours) == 1 and ours == theirs
    if not is_formula:
        return None
    if _words(gold) == _words(given):
        return True
    if _CAPITALS.fullmatch(_words(gold)) and _CAPITALS.fullmatch(_words(given)):
        return False  # AB names a thing, and is not BA
    return None


def _fraction(decimal: re.Match[str]) -> str:
    whole, fixed, repeated = decimal.groups()
    shifted = int(whole + fixed + repeated) - int(whole + fixed or "0")
    return rf"\frac{{{shifted}}}{{{(10 ** len(repeated) - 1) * 10 ** len(fixed)}}}"


def _words(text: str) -> str:
    r"""Return the text with each run of blanks as one, and without `\text` around words."""
    return " ".join(_WRAPPED.sub(r"\1", text).split()).rstrip(".")


def _numerals(text: str) -> list[tuple[str, str]]:
    """Return the numerals that name their base, as (digits, base)."""
    found = _BASED.findall(text)
    return [(digits, str(_BASES.index(b) + 2) if b in _BASES else b) for digits, b in found]


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
