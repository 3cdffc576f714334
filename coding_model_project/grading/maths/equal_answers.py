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
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Eq, Expr, Pow, Rational, expand_power_base, simplify

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
_SPACED = re.compile(rf"(?x) (?<!\\log_)\d \.? {_BLANK}++ (?:\\?[A-Za-z]+\s*=\s*[-+]?)? \.?\d")
"""Two numerals, or equations, with only blanks between them."""

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
_ABOUT = re.compile(r"\\(?:(?:thick)?approx|sim(?:eq)?|cong|doteq|equiv)(?![A-Za-z])|[≈≃≅≡]")
_NEAR = 0.01
"""Maximum relative distance of an approximation from the value before it."""

_REMAINDER = re.compile(r"\\b?mod(?![A-Za-z])")
_DIGITS = 12
_DELIMITERS = re.compile(r"\\?\$|\\[()\[\]]")


def equal(gold: str, answer: str, boxed: bool) -> bool:
    """Return whether an answer equals the gold one.

    Args:
        gold: the content of a box.
        answer: the content of a box if `boxed`, else a sentence that holds the answer.
    """
    expected = parse(_boxed(gold), parsing_timeout=0)
    formula = answer if boxed else _DELIMITERS.sub("", answer).rstrip(" .")
    if not boxed and _WORD.search(_ANY_BLANK.sub(" ", formula)):
        return _are_same(expected, parse(answer, parsing_timeout=0))
    exact = _exact(formula)
    if exact is None or _REMAINDER.search(exact) or (_are_spaced(exact) and not _are_spaced(gold)):
        return False
    if _may_be_several(exact):  # without its last number as a fallback
        return _are_same(
            expected, parse(_boxed(exact), [LatexExtractionConfig()], parsing_timeout=0)
        )
    return _are_same(expected, parse(_boxed(exact), parsing_timeout=0))


def _are_same(expected: list[Any], found: list[Any]) -> bool:
    """Return whether two parsed answers are equal, numbers to twelve significant digits."""
    if verify(
        expected,
        found,
        float_rounding=_DIGITS,
        allow_set_relation_comp=True,
        timeout_seconds=0,
    ):
        one, other = _number(expected), _number(found)
        if one is None or other is None:
            return True
        return bool(abs(one - other) <= abs(one) / 10**_DIGITS)
    one, other = _with_split_roots(expected), _with_split_roots(found)
    return one is not None and other is not None and simplify(one - other) == 0


def _number(parsed: list[Any]) -> Any:
    """Return the value of an answer that is a number, or an equation that ends in one; else None."""
    value = parsed[0] if parsed else None
    if isinstance(value, Eq):
        value = value.rhs
    if not isinstance(value, Expr) or not value.is_number:
        return None
    number: Any = value.doit().evalf(30)
    return number if number.is_finite else None


def _with_split_roots(parsed: list[Any]) -> Any:
    r"""Return a formula of names with `\sqrt{a/b}` as `\sqrt a/\sqrt b`, which sympy keeps apart."""
    value = parsed[0] if parsed else None
    if not isinstance(value, Expr) or not value.free_symbols or not value.has(Rational):
        return None
    return expand_power_base(value.doit(), force=True).replace(
        lambda part: part.is_Pow and part.base.is_Pow and part.base.exp.is_negative,
        lambda part: Pow(1 / part.base, -part.exp),
    )


def _exact(formula: str) -> str | None:
    r"""Return the side of `\frac13 \approx 0.333` that it approximates; None if a side is not near it."""
    if not _ABOUT.search(formula):
        return formula
    sides = [side for side in _ABOUT.split(formula) if side.strip()]
    values = [_number(parse(_boxed(side), parsing_timeout=0)) for side in sides]
    known = [(side, value) for side, value in zip(sides, values, strict=True) if value is not None]
    if not known:
        return formula
    first = known[0][1]
    near = all(abs(value - first) <= abs(first) * _NEAR for _, value in known)
    return known[0][0] if near else None


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
