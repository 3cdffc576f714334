"""The line of a result's detail that names the limit that ended a test.

Messages to a model leave it out (`without_limit`), so that they depend only on what the program did.
"""

from __future__ import annotations

import re

from coding_model_project.grading.retries import CPU_GRACE
from coding_model_project.types import Limits, Status

_LINE = re.compile(
    r"\A(CPU time limit of \S+ s \(\S+ s for the first test that exceeds it\)|wall-clock limit of \S+ s)"
    r"(\n|\Z)"
)


def with_limit(detail: str, status: Status, limits: Limits) -> str:
    """Return the detail of an execution; of a time-out, with a first line that names the limit."""
    if status is Status.cpu_timeout:
        graced = f"{CPU_GRACE * limits.cpu_s:g} s for the first test that exceeds it"
        line = f"CPU time limit of {limits.cpu_s:g} s ({graced})"
    elif status is Status.wall_timeout:
        line = f"wall-clock limit of {limits.wall_s:g} s"
    else:
        return detail
    return f"{line}\n{detail}" if detail else line


def without_limit(detail: str) -> str:
    """Return a detail of a time-out without the line that names the limit."""
    return _LINE.sub("", detail, count=1)
