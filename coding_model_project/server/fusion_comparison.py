"""How SandboxFusion's own judge compares output: forgiving of case, unlike `grading.compare`."""

from __future__ import annotations

import math

_TOLERANCE = 1e-5


def same_lines(expected: str, got: str) -> bool:
    """Line by line, without regard to case and to blanks around; a line that is one number may be
    off by 1e-5 of it."""
    wanted, found = _lines(expected), _lines(got)
    return len(wanted) == len(found) and all(map(_same_line, wanted, found))


def _lines(text: str) -> list[str]:
    return [line.strip().lower() for line in text.strip().split("\n")]


def _same_line(expected: str, got: str) -> bool:
    if expected == got:
        return True
    try:
        return math.isclose(float(expected), float(got), rel_tol=_TOLERANCE)
    except ValueError:
        return False
