"""Output comparison of SandboxFusion's own judge: case-insensitive, unlike `grading.compare`."""

from __future__ import annotations

import math

_TOLERANCE = 1e-5


def same_lines(expected: str, got: str) -> bool:
    """Return whether all lines are equal, ignoring case and surrounding blanks; lines that are one
    number may differ by a relative 1e-5."""
    left, right = _lines(expected), _lines(got)
    return len(left) == len(right) and all(map(_same_line, left, right))


def _lines(text: str) -> list[str]:
    return [line.strip().lower() for line in text.strip().split("\n")]


def _same_line(expected: str, got: str) -> bool:
    if expected == got:
        return True
    try:
        return math.isclose(float(expected), float(got), rel_tol=_TOLERANCE)
    except ValueError:
        return False
