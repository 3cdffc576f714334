"""The parts of tasks: small pieces of wording and code, each with its common mistake."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MistakeKind(StrEnum):
    """A kind of mistake. The first group applies to a part, the second to a whole program."""

    boundary = "boundary"
    operator = "operator"
    empty_input = "empty_input"
    type = "type"
    order = "order"
    duplicates = "duplicates"
    wrong_builtin = "wrong_builtin"
    off_by_one = "off_by_one"
    sign = "sign"
    case = "case"

    missing_return = "missing_return"
    syntax = "syntax"
    name_error = "name_error"
    infinite_loop = "infinite_loop"


@dataclass(frozen=True, slots=True)
class Mistake:
    """Wrong code that replaces a part's code."""

    kind: MistakeKind
    code: str


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a task.

    `hard` adds to the task's difficulty. The easy levels (1-2) consist of parts with 0 or 1; parts with 2
    occur only above them, so demonstrations of easy tasks never contain them.
    """

    key: str
    words: str
    code: str
    mistake: Mistake | None = None
    hard: int = 0


def part(key: str, words: str, code: str, wrong: str = "", kind: str = "", hard: int = 0) -> Part:
    """Make a part with at most one mistake, as shorthand for the tables in `families`."""
    mistake = Mistake(MistakeKind(kind), wrong) if wrong else None
    return Part(key=key, words=words, code=code, mistake=mistake, hard=hard)
