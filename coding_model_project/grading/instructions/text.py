"""Words, punctuation and sentences of a response, by the publishers' rules."""

from __future__ import annotations

import re
import string

PUNCTUATION = string.punctuation
EDGES = PUNCTUATION + " "
"""Characters stripped from the ends of a word."""

_DROP_PUNCTUATION = str.maketrans("", "", PUNCTUATION)

_KEPT, _END = "\ue000", "\ue001"
"""Private-use characters for a period within a sentence, and for the end of a sentence."""

_DROP_MARKS = str.maketrans("", "", _KEPT + _END)

_OPENINGS = (
    r"(Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|Wherever"
    r"|(?:He|She|It|They|Their|Our|We|But|However|That|This)\s)"
)
_COMPANIES = "(Inc|Ltd|Jr|Sr|Co)"
_LETTER = "([A-Za-z])"


def _ellipsis(run: re.Match[str]) -> str:
    return _KEPT * len(run[0]) + _END


_PERIODS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(Mr|St|Mrs|Ms|Dr)\.", rf"\1{_KEPT}"),
        (r"\.(com|net|org|io|gov|edu|me)", rf"{_KEPT}\1"),
        (r"([0-9])\.([0-9])", rf"\1{_KEPT}\2"),
        (r"\.{2,}", _ellipsis),
        (r"Ph\.D\.", f"Ph{_KEPT}D{_KEPT}"),
        (rf"\s{_LETTER}\. ", rf" \1{_KEPT} "),
        (rf"([A-Z]\.[A-Z]\.(?:[A-Z]\.)?) {_OPENINGS}", rf"\1{_END} \2"),
        (rf"{_LETTER}\.{_LETTER}\.{_LETTER}\.", rf"\1{_KEPT}\2{_KEPT}\3{_KEPT}"),
        (rf"{_LETTER}\.{_LETTER}\.", rf"\1{_KEPT}\2{_KEPT}"),
        # The publishers drop the period here, which affects checks of a sentence's last character.
        (rf" {_COMPANIES}\. {_OPENINGS}", rf" \1{_END} \2"),
        (rf" {_COMPANIES}\.", rf" \1{_KEPT}"),
        (rf" {_LETTER}\.", rf" \1{_KEPT}"),
    )
)
"""Rules for periods within sentences. Their order matters: each one sees the result of the last."""

_CLOSING_QUOTES = ((".”", "”."), ('."', '".'), ('!"', '"!'), ('?"', '"?'))
_ENDING = re.compile(r"[.?!]")
_WORD = re.compile(r"\w+")


def without_punctuation(text: str) -> str:
    """Return the text without ASCII punctuation."""
    return text.translate(_DROP_PUNCTUATION)


def bare_words(text: str) -> list[str]:
    """Return the words of a text after removal of ASCII punctuation."""
    return without_punctuation(text).split()


def runs_of_word_characters(text: str) -> list[str]:
    """Return the words as most length limits count them: "it's" is two."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Split at periods, question marks and exclamation marks, by IFBench's rules for abbreviations.

    A newline does not end a sentence, and a run such as "?!" ends two.
    """
    text = f" {text.translate(_DROP_MARKS)}  ".replace("\n", " ")
    for pattern, replacement in _PERIODS:
        text = pattern.sub(replacement, text)
    for inside, outside in _CLOSING_QUOTES:
        text = text.replace(inside, outside)
    text = _ENDING.sub(rf"\g<0>{_END}", text).replace(_KEPT, ".")
    found = [sentence.strip() for sentence in text.split(_END)]
    return found if found[-1] else found[:-1]


def compares(count: int, relation: str, threshold: int) -> bool:
    """Return whether a count satisfies IFEval's relation "less than" or "at least"."""
    return count < threshold if relation == "less than" else count >= threshold
