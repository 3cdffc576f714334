"""What tasks are composed of: small pieces of wording and code, each with its common mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MistakeKind(StrEnum):
    """What goes wrong. The first group is a part's own, the second a whole program's."""

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
    """Wrong code in a part's place."""

    kind: MistakeKind
    code: str


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a task.

    `hard` adds to the task's difficulty: 0 for what the easy levels (1-2) are made of, 2 for what
    only occurs above them, so that demonstrations of easy tasks never show it.
    """

    key: str
    words: str
    code: str
    mistake: Mistake | None = None
    hard: int = 0


def part(key: str, words: str, code: str, wrong: str = "", kind: str = "", hard: int = 0) -> Part:
    """Shorthand for the tables in `families`: a part with at most one mistake."""
    mistake = Mistake(MistakeKind(kind), wrong) if wrong else None
    return Part(key=key, words=words, code=code, mistake=mistake, hard=hard)
