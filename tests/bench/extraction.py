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

Make = Callable[[int], str]


def _repeated(unit: str, *, before: str = "", after: str = "") -> Make:
    return lambda size: before + unit * max(1, (size - len(before + after)) // len(unit)) + after


def _falling_fences(size: int) -> str:
    """Return blocks whose fences get shorter, so that none closes an earlier block."""
    longest = int(size**0.5)
    return "".join(f"{'`' * n}python\n'''\n{'`' * n}\n" for n in range(longest, 3, -1))[:size]


KINDS: dict[str, Make] = {
    "tildes": _repeated("~", after="`"),
    "backticks": _repeated("`"),
    "blanks": _repeated(" ", after="```"),
    "tabs": _repeated("\t", before="```python\n", after="```"),
    "lines": _repeated("\n", after="```"),
    "quotes": _repeated("> ", after="```"),
    "items": _repeated("- ", after="```python\nx\n```"),
    "openers in items": _repeated("- ```\n"),
    "openers in deep items": _repeated("- " * 30 + "```\n"),
    "openers in deep quotes": _repeated("> " * 30 + "```\n"),
    "carriage returns": _repeated("\r", before="```python\n", after="\n```"),
    "mixed fences": _repeated("~~~`"),
    "openers": _repeated("```python\n"),
    "openers of others": _repeated("```text\n```python\n"),
    "openers in text": _repeated("```text\n", after="```python\nx\n```"),
    "closers": _repeated("```\n"),
    "both closers": _repeated("```\n~~~\n"),
    "inline closers": _repeated("x```\n", before="```python\n"),
    "inline blocks": _repeated("```python\nx x```\n"),
    "falling fences": _falling_fences,
    "open strings": _repeated("```python\n#'''\n'''\n```\n"),
    "one open string": _repeated("x\n```\n", before="```python\n'''\n"),
    "blocks in a string": _repeated("```\nx\n", before="```python\ns = '''\n", after="'''\n```\n"),
    "unread blocks": _repeated("```\nx = (\n```\n"),
    "long info": _repeated("x ", before="```"),
    "begins": _repeated("[BEGIN]\n"),
    "dones": _repeated("[DONE]\n"),
    "begins and dones": _repeated("[BEGIN]\nx\n[DONE]\n"),
    "done in code": _repeated("x[DONE] "),
    "begins in blocks": _repeated("```\n[BEGIN]\n```\n"),
    "thoughts": _repeated("<think>"),
    "ends of thoughts": _repeated("</think>"),
    "both of thoughts": _repeated("<think></think>\n"),
    "thoughts in blocks": _repeated("```python\n</think>\n"),
    "quoted thoughts": _repeated("'</think>'"),
    "thoughts in strings": _repeated("```python\n'<think></think>'\n```\n"),
    "open brackets": _repeated("(", before="```\n", after="\n```"),
    "sessions": _repeated("```python\n>>> f(1)\n2\n```\n"),
    "honest prose": _repeated(
        "It adds the two numbers, and prints it.\n", after="```python\nx\n```"
    ),
    "honest code": _repeated("x = f(a, b) + 1\n", before="```python\n", after="```"),
    "honest blocks": _repeated(
        "So:\n```python\ndef f(x):\n    return x + 1\n```\nIt prints:\n```\n2\n```\n"
    ),
}


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
