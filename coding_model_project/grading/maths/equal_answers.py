r"""A program that compares two answers as mathematics, by math-verify.

`grader.MathGrader` runs it in a sandbox: an answer such as `9^{9^{9^9}}` may need unlimited time and
memory, and math-verify evaluates plain expressions like Python.
"""

from __future__ import annotations

import logging

from math_verify import parse, verify

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns about its disabled time limit


def equal(gold: str, answer: str, boxed: bool) -> bool:
    """Return whether an answer equals the gold one.

    Args:
        gold: the content of a box.
        answer: the content of a box if `boxed`, else a sentence that holds the answer.
    """
    given = _boxed(answer) if boxed else answer
    expected = parse(_boxed(gold), parsing_timeout=0)
    found = parse(given, parsing_timeout=0)
    return verify(expected, found, timeout_seconds=0)


def _boxed(text: str) -> str:
    return f"\\boxed{{{text}}}"
