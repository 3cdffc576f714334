"""How publishers' own harnesses compare standard output with the expected text, in our own words.

Their numbers come from these rules, which differ from `compare`. None is a recommendation: some accept
wrong answers, others reject right ones. "Lines" end at a newline only, unless stated otherwise.

livecodebench        Strips the text and each line. As many lines must remain, and each equals the
                     expected one as text, or word by word as decimal numbers, without a tolerance.
                     LiveCodeBench 28fef95, lcb_runner/evaluation/testing_util.py.
codecontests         Lower-cases ASCII letters and splits at space, \\n, \\t, \\r and \\v. Words are equal as
                     text, or numbers that differ by less than 1e-5; doubles, so long integers lose digits.
                     If any word differs as text, no inf or nan is accepted, not even for itself.
                     code_contests fa7a4f8, execution/tester_sandboxer.cc; Abseil's number parser.
apps                 Splits the output at all separators of lines. Accepts equal text; equal lines, after
                     blank lines are dropped; lines that are numbers within 1e-5 of the expected; and the
                     same set of lines, each as a set of words or of numbers rounded to three places.
                     A line of blanks in the expected text never equals one of the output.
                     apps 362aedc, eval/testing_util.py.
taco                 As apps, but it forgot to split the output at lines: numbers compare with the output's
                     characters, and sets of words with the sets of characters of its words. It reads the
                     output with universal newlines. TACO 245eba3, metrics/testing_util.py.
prime_code           As apps without sets. Lines that are digits only on both sides are not read as numbers.
                     verl 0.9.1, utils/reward_score/prime_code/testing_util.py.
sandboxfusion        Strips the text and each line, and lower-cases them. As many lines must remain, and each
                     is equal as text, or a number within a relative 1e-5.
                     SandboxFusion 469de08, sandbox/utils/testing.py, of its data sets with stdin.
genesys              Strips the text and each line; equal as text. It produced SYNTHETIC-1.
                     genesys bc10edd, src/genesys/verifiers/code_test_verifier.py.
open_r1              As genesys, but it compares only as many lines as the shorter text has, and does not
                     strip the whole expected text. It reads the output with universal newlines.
                     open-r1 1416fa0, src/open_r1/rewards.py.
verl_sandbox_fusion  Equal text without newlines at the end.
                     verl 0.9.1, utils/reward_score/sandbox_fusion/utils.py.

An exception in a harness counts as a wrong answer there, so it is False here. Programs write the output,
so all work grows with the length of the texts and nothing else: no `int` of many digits, no float as a
key of a set, since a program can choose floats with equal hashes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TypeVar

T = TypeVar("T")
Comparison = Callable[[str, str], bool]
"""A function (expected, got) → bool."""


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _filled(expected: str) -> list[str]:
    """Return lines that are not empty, stripped; a line of blanks is kept as an empty one."""
    return [line.strip() for line in expected.split("\n") if line]


def _universal_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _pairwise(same: Callable[[T, T], bool], expected: Sequence[T], got: Sequence[T]) -> bool:
    return len(expected) == len(got) and all(map(same, expected, got))


def _same_lines(expected: str, got: str, same: Comparison) -> bool:
    """Return whether the stripped lines are equal as text, or else by a rule, one by one."""
    return _pairwise(
        lambda one, other: one == other or same(one, other), _lines(expected), _lines(got)
    )


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


def _same_sets(expected: list[list[str]], got: Iterable[Iterable[str]]) -> bool:
    """Return whether the sets of words in each group form the same set of sets, or rounded numbers do."""
    groups = [frozenset(group) for group in got]
    wanted = {frozenset(group) for group in expected}
    return wanted == set(groups) or _same_rounded(wanted, groups)


def _same_rounded(expected: Iterable[Iterable[str]], got: Iterable[Iterable[str]]) -> bool:
    try:
        wanted = {frozenset(map(_rounded, group)) for group in expected}
        return wanted == {frozenset(map(_rounded, group)) for group in got}
    except ValueError:
        return False


def _rounded(word: str) -> str:
    """Return a number to three places as text, whose hash no program can choose.

    Raises:
        ValueError: the word is not a number, or nan, which equals nothing.
    """
    value = float(word)
    if math.isnan(value):
        raise ValueError("nan")
    return repr(round(value, 3) + 0.0)  # -0.0 + 0.0 is 0.0


def _livecodebench(expected: str, got: str) -> bool:
    return _same_lines(expected, got, _same_decimals)


_CPP_WORD = re.compile(rb"[^ \n\t\r\v]+")


def _codecontests(expected: str, got: str) -> bool:
    wanted, found = (
        _CPP_WORD.findall(text.encode("utf-8", "surrogatepass").lower()) for text in (expected, got)
    )
    return wanted == found or _pairwise(_same_cpp_word, wanted, found)


def _same_cpp_word(expected: bytes, got: bytes) -> bool:
    wanted, found = (None if b"_" in word else _float(word) for word in (expected, got))
    if wanted is None or found is None:
        return expected == got
    return abs(wanted - found) < 1e-5  # False for inf - inf


def _apps(expected: str, got: str) -> bool:
    wanted, lines = _filled(expected), got.splitlines()
    if _same_text_or_lines(expected, wanted, lines):
        return True
    found = [line for line in lines if line]
    return _pairwise(_near_floats, wanted, found) or _same_sets(
        _words(wanted), filter(None, _words(found))
    )


def _words(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def _same_text_or_lines(expected: str, wanted: list[str], lines: list[str]) -> bool:
    text = expected.strip()
    return (
        text == "\n".join(lines).strip()
        or text == "\n".join(map(str.strip, lines)).strip()
        or wanted == lines
        or wanted == [line for line in lines if line]
    )


def _taco(expected: str, got: str) -> bool:
    got = _universal_newlines(got)
    wanted = _filled(expected)
    return (
        expected.strip() == got.strip()
        or _pairwise(_near_floats, wanted, got)
        or _same_sets(_words(wanted), got.split())
    )


def _prime_code(expected: str, got: str) -> bool:
    wanted, lines = _filled(expected), got.splitlines()
    if _same_text_or_lines(expected, wanted, lines):
        return True
    found = [line for line in lines if line]
    return not all(map(str.isdigit, wanted + found)) and _pairwise(_near_floats, wanted, found)


def _sandboxfusion(expected: str, got: str) -> bool:
    return _same_lines(expected.lower(), got.lower(), _relatively_near)


def _relatively_near(expected: str, got: str) -> bool:
    wanted, found = _float(expected), _float(got)
    if wanted is None or found is None:
        return False
    return abs(found - wanted) / max(abs(wanted), 1e-10) < 1e-5


def _genesys(expected: str, got: str) -> bool:
    return _lines(expected) == _lines(got)


def _open_r1(expected: str, got: str) -> bool:
    lines = _universal_newlines(got).strip().split("\n")
    pairs = zip(expected.split("\n"), lines, strict=False)
    return all(one.strip() == other.strip() for one, other in pairs)


def _verl_sandbox_fusion(expected: str, got: str) -> bool:
    return expected.rstrip("\n") == got.rstrip("\n")


COMPARISONS: dict[str, Comparison] = {
    "livecodebench": _livecodebench,
    "codecontests": _codecontests,
    "apps": _apps,
    "taco": _taco,
    "prime_code": _prime_code,
    "sandboxfusion": _sandboxfusion,
    "genesys": _genesys,
    "open_r1": _open_r1,
    "verl_sandbox_fusion": _verl_sandbox_fusion,
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


def difference(expected: str, got: str) -> str:
    """Return the name in `CLASSES` for what distinguishes an output from the expected text.

    It explains a disagreement between two rules, so it is only called for one.
    """
    wanted, found = expected.split(), got.split()
    if wanted == found:
        same = _words(_lines(expected)) == _words(_lines(got))
        return "blanks in lines" if same else "by lines"
    if len(wanted) == len(found):
        pairs = [pair for pair in zip(wanted, found, strict=True) if pair[0] != pair[1]]
        for name, holds in _OF_WORDS.items():
            if all(holds(one, other) for one, other in pairs):
                return name
    return next((name for name, holds in _OF_TEXTS.items() if holds(wanted, found)), "otherwise")


def _is_whole(word: str) -> bool:
    return word.lstrip("+-").isdigit()


def _is_other_script(word: str) -> bool:
    return "_" in word or not word.isascii()


def _within(expected: str, got: str, *, atol: float, rtol: float) -> bool:
    wanted, found = _float(expected), _float(got)
    if wanted is None or found is None:
        return False
    return abs(found - wanted) <= max(atol, rtol * abs(wanted))


def _are_not_finite(expected: str, got: str) -> bool:
    values = _float(expected), _float(got)
    return all(value is not None and not math.isfinite(value) for value in values)


_OF_WORDS: dict[str, Comparison] = {
    "case of letters": lambda e, g: e.casefold() == g.casefold(),
    "nan and inf": _are_not_finite,
    "digits of other scripts": lambda e, g: _is_other_script(g) and _same_decimals(e, g),
    "07 for 7": lambda e, g: _is_whole(e) and _is_whole(g) and _same_decimals(e, g),
    "5.0 for 5": lambda e, g: _is_whole(e) and _same_decimals(e, g),
    "digits of floats": _same_decimals,
    "floats exactly": lambda e, g: not _is_whole(e) and _within(e, g, atol=1e-6, rtol=1e-6),
    "long integers as floats": lambda e, g: _is_whole(e) and _within(e, g, atol=0, rtol=1e-5),
    "tolerance of floats": lambda e, g: _within(e, g, atol=1e-3, rtol=1e-5),
}
"""Classes of texts with equally many words: what is true of each pair of words that differ."""

_OF_TEXTS: dict[str, Callable[[list[str], list[str]], bool]] = {
    "any order": lambda wanted, found: Counter(wanted) == Counter(found),
    "repeated words": lambda wanted, found: set(wanted) == set(found),
    "cut short": lambda wanted, found: wanted[: len(found)] == found,
    "characters for words": lambda wanted, found: set("".join(wanted)) == set("".join(found)),
}

CLASSES = ("blanks in lines", "by lines", *_OF_WORDS, *_OF_TEXTS, "otherwise")
"""Names of all classes of differences."""
