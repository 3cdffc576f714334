"""The comparisons of standard output of publishers' own harnesses, in our own words.

Published numbers come from these rules, which differ from those of `compare`: some accept wrong
answers, others reject right ones. Lines end at a newline only, unless stated otherwise.

livecodebench: LiveCodeBench 28fef95, lcb_runner/evaluation/testing_util.py
    Strips the text and each line. As many lines must remain. Each equals the expected one as text,
    or word by word as decimal numbers, without a tolerance.
codecontests: code_contests fa7a4f8, execution/tester_sandboxer.cc; Abseil's parser of numbers
    Lower-cases ASCII letters, and splits words at space, \\n, \\t, \\r and \\v. Words are equal as
    text, or are numbers less than 1e-5 apart; these are doubles, so long integers lose digits.
    Unless all words are equal as text, no inf or nan is accepted, even for itself.
apps: apps 362aedc, eval/testing_util.py
    Splits the output at all of Python's line separators. Accepts equal text; equal lines without
    the empty ones; lines that are numbers, within 1e-5 of the expected ones; and the same lines in
    any order, each as a set of words, or of numbers rounded to three places. A line of blanks in
    the expected text is an empty set, which no output has.
taco: TACO 245eba3, metrics/testing_util.py
    As apps, but the output, read with universal newlines, is never split into lines. So the numbers
    are those of its characters, and the sets are the sets of characters of its words.
prime_code: verl 0.9.1, utils/reward_score/prime_code/testing_util.py
    As apps without the sets. No tolerance if all lines of both texts consist of digits.

An exception in a harness is a wrong answer there, so it is False here. Programs write the output,
so all work is linear in the length of both texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TypeVar

_T = TypeVar("_T")
Comparison = Callable[[str, str], bool]
"""A function (expected, got) → bool."""


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _filled(expected: str) -> list[str]:
    """Return lines that are not empty, stripped; a line of blanks is kept as an empty one."""
    return [line.strip() for line in expected.split("\n") if line]


def _universal_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _pairwise(same: Callable[[_T, _T], bool], expected: Sequence[_T], got: Sequence[_T]) -> bool:
    return len(expected) == len(got) and all(map(same, expected, got))


def _same_decimals(expected: str, got: str) -> bool:
    """Return whether the words of two lines are equal decimal numbers."""
    try:
        return [Decimal(word) for word in expected.split()] == [
            Decimal(word) for word in got.split()
        ]
    except ArithmeticError:  # a word is not a number, or a signalling NaN
        return False


def _float(text: str | bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _near(expected: float, got: float) -> bool:
    """Return what NumPy's `isclose` does by default, which is not symmetric."""
    if expected == got:
        return True
    return math.isfinite(expected) and abs(got - expected) <= 1e-8 + 1e-5 * abs(expected)


def _near_floats(expected: str, got: str) -> bool:
    wanted, found = _float(expected), _float(got)
    return wanted is not None and found is not None and _near(wanted, found)


def _same_sets(
    expected: Iterable[str], got: Iterable[str], members: Callable[[str], Iterable[str]]
) -> bool:
    """Return whether texts are the same sets, in any order, of words or of rounded numbers.

    Args:
        members: the members of the set that a text of `got` is.
    """
    wanted = [frozenset(one.split()) for one in expected]
    found = set(got)
    try:
        return any(
            _are_sets({frozenset(map(of, one)) for one in wanted}, map(members, found), of)
            for of in (str, _to_three_places)
        )
    except ValueError:  # a word is not a number, or nan, which equals nothing
        return False


def _are_sets(
    wanted: set[frozenset[str]], groups: Iterable[Iterable[str]], of: Callable[[str], str]
) -> bool:
    """Return whether the groups are the wanted sets.

    It stops at the first other word, since a program can print a million.
    """
    known = frozenset[str]().union(*wanted)
    found: set[frozenset[str]] = set()
    for group in groups:
        own: set[str] = set()
        for word in map(of, frozenset(group)):
            if word not in known:
                return False
            own.add(word)
        found.add(frozenset(own))
    return found == wanted


def _to_three_places(word: str) -> str:
    """Return a number to three places. It stays a text: a program can choose floats of equal hashes.

    Raises:
        ValueError: the word is not a number, or nan.
    """
    value = float(word)
    if math.isnan(value):
        raise ValueError("nan")
    return repr(round(value, 3) + 0.0)  # -0.0 + 0.0 is 0.0


_CPP_WORD = re.compile(rb"[^ \n\t\r\v]+")


def _codecontests(expected: str, got: str) -> bool:
    wanted, found = (
        _CPP_WORD.findall(text.encode("utf-8", "surrogatepass").lower()) for text in (expected, got)
    )
    return wanted == found or _pairwise(_same_cpp_word, wanted, found)


def _same_cpp_word(expected: bytes, got: bytes) -> bool:
    if expected == got:
        value = _cpp_float(expected)
        return value is None or math.isfinite(value)
    wanted, found = _cpp_float(expected), _cpp_float(got)
    # inf - inf is nan
    return wanted is not None and found is not None and abs(wanted - found) < 1e-5


_CPP_HEXADECIMAL = re.compile(rb"\f*[+-]?0x[0-9a-f]*(?:\.[0-9a-f]*)?(?:p[+-]?[0-9]+)?\f*")


def _cpp_float(word: bytes) -> float | None:
    """Return the double that Abseil reads; it knows `0x1f`. `nan(1)` is not covered."""
    if not _CPP_HEXADECIMAL.fullmatch(word):
        return None if b"_" in word else _float(word)
    try:
        return float.fromhex(word.decode())
    except OverflowError:
        return math.inf  # of either sign, since nothing is near it
    except ValueError:
        return None


def _like_apps(expected: str, got: str, same: Callable[[list[str], list[str]], bool]) -> bool:
    """Return whether texts are equal as apps first tries, or else their filled lines by a rule."""
    text, wanted, lines = expected.strip(), _filled(expected), got.splitlines()
    found = [line for line in lines if line]
    return (
        text == "\n".join(lines).strip()
        or text == "\n".join(map(str.strip, lines)).strip()
        or wanted in (lines, found)
        or same(wanted, found)
    )


def _near_or_same_sets(expected: list[str], got: list[str]) -> bool:
    return _pairwise(_near_floats, expected, got) or _same_sets(
        expected, filter(str.strip, got), str.split
    )


def _near_unless_digits(expected: list[str], got: list[str]) -> bool:
    digits = all(map(str.isdigit, expected + got))
    return not digits and _pairwise(_near_floats, expected, got)


def _taco(expected: str, got: str) -> bool:
    got = _universal_newlines(got)
    wanted = _filled(expected)
    return (
        expected.strip() == got.strip()
        or _pairwise(_near_floats, wanted, got)
        or _same_sets(wanted, got.split(), iter)
    )


COMPARISONS: dict[str, Comparison] = {
    "livecodebench": lambda e, g: _pairwise(
        lambda one, other: one == other or _same_decimals(one, other), _lines(e), _lines(g)
    ),
    "codecontests": _codecontests,
    "apps": lambda e, g: _like_apps(e, g, _near_or_same_sets),
    "taco": _taco,
    "prime_code": lambda e, g: _like_apps(e, g, _near_unless_digits),
}
"""Rules by publisher. They are pure and raise nothing."""


def extracted_by_livecodebench(answer: str) -> str | None:
    """Return the text between the last two lines with a fence; None for an answer with fewer.

    Neither has to open or close a block, so a program followed by a block of sample output is lost.
    LiveCodeBench 28fef95, lcb_runner/utils/extraction_utils.py; it runs an empty program for None.
    """
    lines = answer.split("\n")
    fences = [number for number, line in enumerate(lines) if "```" in line]
    if len(fences) < 2:
        return None
    return "\n".join(lines[fences[-2] + 1 : fences[-1]])
