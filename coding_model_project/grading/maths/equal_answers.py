r"""A program that compares two answers as mathematics, by math-verify.

`grader.MathGrader` runs it in a sandbox: an answer such as `9^{9^{9^9}}` may need unlimited time and
memory, and math-verify evaluates plain expressions like Python.

math-verify takes the last number of a formula that it cannot parse, joins `7\text{ }8` to 78, and adds
`7 8` up. Here, such a formula holds several values, and equals no single one.
"""

from __future__ import annotations

import logging
import re
from itertools import pairwise

from math_verify import LatexExtractionConfig, parse, verify

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns about its disabled time limit

_WIDE = r"""(?:
    \n | \\\\ | \\(?:q?quad|newline|par|hfill)(?![A-Za-z]) | \\(?:hspace|hskip)(?![A-Za-z])
)"""
_BLANK = rf"""(?:
    {_WIDE} | [\s~\u200b-\u200d\u2060\ufeff] | \\[\s,;:>!] | \{{\s*\}}
    | \\(?:text|textrm|mbox|mathrm|[hv]?phantom)\{{[^{{}}\w]*\}} | \*?\{{[\d.\s]*[a-z]{{2}}\}}
    | \\(?:en(?:space|skip)|(?:neg)?(?:thin|med|thick)space|(?:nobreak)?space)(?![A-Za-z])
    | \\(?:null|(?:math)?strut|[lc]?dots)(?![A-Za-z]) | \\?\$ | ['"]
    | (?:\\(?:kern|mskip|mkern)\s*)?-?[\d.]+\s*(?:pt|em|ex|cm|mm|mu|in)(?![A-Za-z])
)"""
_SPACED = re.compile(rf"(?x) \d \.? {_BLANK}++ (?:\\?[A-Za-z]+\s*=\s*[-+]?)? \.?\d")
"""Two numerals, or equations, with only blanks between them."""

_THOUSANDS = re.compile(r"\D*\d{1,3}(?:[\s~]\d{3})+(?:\.\d+)?\D*")
_ANY_BLANK = re.compile(rf"(?x) {_BLANK}")
_BREAK = re.compile(rf"(?x) {_BLANK}*? {_WIDE} {_BLANK}*+")
_CONTINUED = re.compile(r"[-+*/=^_<>,;:&({]$|\\(?:cdot|times|div|pm|leq?|geq?|neq?|left\(?)$")
_CONTINUES = re.compile(
    r"[+*/=^_<>,;:&)}]|-\s|\\(?:cdot|times|div|pm|leq?|geq?|neq?|text[a-z]*)|\(\s*\\?[a-z]{2}"
)

_NUMERAL = re.compile(r"\d[\d.,]*")
_LIMIT = re.compile(r"\s*\\?[A-Za-z]+\s*\\(?:to|rightarrow|longrightarrow)(?![A-Za-z])")
_JOINS = re.compile(
    r"\\(?:[bB]ig)?(?:cup|cap|to|[lL]?ong[rR]ightarrow|[rR]ightarrow|mapsto|implies|iff|neg|lnot|not|lor|land"
    r"|vee|wedge|setminus|mid|oplus|otimes|parallel)(?![A-Za-z])|[∪∩→⇒↦¬∨∧]"
)
"""Signs between values, or before one that is not meant."""

_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_DELIMITERS = re.compile(r"\\?\$|\\[()\[\]]")


def equal(gold: str, answer: str, boxed: bool) -> bool:
    """Return whether an answer equals the gold one.

    Args:
        gold: the content of a box.
        answer: the content of a box if `boxed`, else a sentence that holds the answer.
    """
    expected = parse(_boxed(gold), parsing_timeout=0)
    found = parse(_boxed(answer) if boxed else answer, parsing_timeout=0)
    formula = answer if boxed else _DELIMITERS.sub("", answer).rstrip(" .")
    if boxed or not _WORD.search(_ANY_BLANK.sub(" ", formula)):
        is_number = not boxed and _THOUSANDS.fullmatch(formula)
        if _are_spaced(formula) and not _are_spaced(gold) and not is_number:
            return False
        if _may_be_several(formula) and not is_number:  # without its last number as a fallback
            found = parse(_boxed(formula), [LatexExtractionConfig()], parsing_timeout=0)
    return verify(expected, found, timeout_seconds=0)


def _are_spaced(formula: str) -> bool:
    """Return whether a formula holds several values, with only blanks between two of them."""
    if _SPACED.search(formula):
        return True
    if r"\begin" in formula:  # a matrix has rows
        return False
    parts = _BREAK.split(formula)
    return any(
        _NUMERAL.search(one)
        and _NUMERAL.search(other)
        and not _CONTINUED.search(one)
        and not _CONTINUES.match(other)
        for one, other in pairwise(parts)
    )


def _may_be_several(formula: str) -> bool:
    rest = _LIMIT.sub("", formula, count=1)
    return len(_NUMERAL.findall(formula)) > 1 or _JOINS.search(rest) is not None


def _boxed(text: str) -> str:
    return f"\\boxed{{{text}}}"
