"""Time to find a program by the completion's length: it must be linear, also for hostile text.

    python -m tests.bench.extraction [--max-chars 1000000]

Each kind of text is made at three lengths, each ten times the one before. The last line is JSON: the
slowest kind, and the highest growth, where 10 is linear.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial

from coding_model_project.grading.extract import extract, first_block, is_one_block
from tests.tables import tables

Make = Callable[[int], str]


def _repeated(before: str, unit: str, after: str, size: int) -> str:
    return before + unit * max(1, (size - len(before + after)) // len(unit)) + after


def _falling_fences(size: int) -> str:
    """Return blocks whose fences get shorter, so that none closes an earlier block."""
    longest = int(size**0.5)
    return "".join(f"{'`' * n}python\n'''\n{'`' * n}\n" for n in range(longest, 3, -1))[:size]


KINDS: dict[str, Make] = {
    kind: partial(_repeated, *parts) for kind, parts in tables("long_answers").items()
} | {"falling fences": _falling_fences}
"""Texts by kind, made of a beginning, a part that is repeated, and an end."""


WAYS: tuple[Callable[[str], object], ...] = tuple(
    partial(find, language=language)
    for language in ("python", "bash", "cpp")
    for find in (extract, partial(extract, bare=True), first_block, is_one_block)
)
"""The functions that parse a completion."""


def seconds(text: str) -> float:
    """Return the CPU seconds of the slowest function."""
    slowest = 0.0
    for way in WAYS:
        started = time.process_time()
        way(text)
        slowest = max(slowest, time.process_time() - started)
    return slowest


def main(arguments: list[str]) -> None:
    """Print a line per kind, and a summary as JSON."""
    largest = int(arguments[1]) if arguments[:1] == ["--max-chars"] else 1_000_000
    sizes = (largest // 100, largest // 10, largest)
    print(f"{'kind':22}" + "".join(f"{size:>12,}" for size in sizes) + "    growth")
    slowest, growth = ("", 0.0), ("", 0.0)
    for kind, make in KINDS.items():
        taken = [seconds(make(size)) for size in sizes]
        grown = taken[-1] / max(taken[-2], 0.001)
        slowest = max(slowest, (kind, taken[-1]), key=lambda one: one[1])
        growth = max(growth, (kind, grown), key=lambda one: one[1])
        print(f"{kind:22}" + "".join(f"{one:>11.4f}s" for one in taken) + f"{grown:>10.1f}")
    print(
        json.dumps(
            {
                "max_chars": largest,
                "slowest": slowest[0],
                "slowest_s": round(slowest[1], 2),
                "highest_growth": growth[0],
                "growth": round(growth[1], 1),
                "load": round(os.getloadavg()[0], 1),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
