"""The families of tasks: their parts, which `tinycode_parts.csv` has, and how they combine.

In code, {f} {m} {s} stand for a filter, a map and a source; {g} for a generator over them; K and V for a
dictionary's key and value. Constants differ where wording differs, but two parts of one slot must not
differ by constants alone: tasks must stay distinct after constants are normalised.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path


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


def _read_parts() -> dict[str, tuple[Part, ...]]:
    """Return the parts in `tinycode_parts.csv` by slot, each with at most one mistake."""
    slots: dict[str, tuple[Part, ...]] = {}
    with Path(__file__).with_name("tinycode_parts.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            mistake = Mistake(MistakeKind(row["mistake"]), row["wrong"]) if row["mistake"] else None
            part = Part(row["key"], row["words"], row["code"], mistake, int(row["hard"]))
            slots[row["slot"]] = (*slots.get(row["slot"], ()), part)
    return slots


@dataclass(frozen=True, slots=True)
class Composition:
    """A task before phrasing: its parts, in slots, and how they make a program."""

    family: str
    argument: str
    """The function's parameter: xs (list of int), n (int) or s (str)."""
    parts: tuple[Part, ...]
    what: str
    """The result in words, completing "returns …"."""

    @property
    def key(self) -> str:
        return f"{self.family}:" + ".".join(p.key for p in self.parts)

    def body(self, codes: tuple[str, ...] | None = None) -> str:
        """Return the function's body, with the parts' own code, or `codes` for each part."""
        return _BODIES[self.family](codes or tuple(p.code for p in self.parts))


def _generator(mapped: str, variable: str, source: str, kept: str) -> str:
    condition = "" if kept == "True" else f" if {kept}"
    return f"({mapped} for {variable} in {source}{condition})"


def _reduce(reducer: str, generator: str) -> str:
    return "return " + reducer.replace("({g})", generator).replace("{g}", generator)


_BODIES = {
    "lists": lambda c: _reduce(c[2], _generator(c[1], "x", "xs", c[0])),
    "integers": lambda c: _reduce(c[3], _generator(c[2], "x", c[0], c[1])),
    "characters": lambda c: _reduce(c[2], _generator(c[1], "c", "s", c[0])),
    "words": lambda c: _reduce(c[2], _generator(c[1], "w", "s.split()", c[0])),
    "groups": lambda c: (
        f"d = {{}}\n    for x in xs:\n        {c[1].replace('K', c[0])}\n    return {c[2]}"
    ),
    "algorithms": lambda c: (
        ("" if c[0] == "True" else f"xs = [x for x in xs if {c[0]}]\n    ")
        + f"{c[1]}\n    return {c[2]}"
    ),
}


_FAMILIES = {
    "lists": ("xs", "number_filters number_maps number_reducers", "the {2} the {1} {0} numbers in xs"),
    "integers": (
        "n", "sources integer_filters integer_maps integer_reducers",
        "the {3} the {2} {1} ones of the {0}",
    ),
    "characters": ("s", "char_filters char_maps char_reducers", "the {2} the {1} {0} in s"),
    "words": ("s", "word_filters word_maps char_reducers", "the {2} the {1} {0} in s"),
    "groups": ("xs", "keys grouped finishes", "the {1} of the numbers in xs grouped by {0} {2}"),
    "algorithms": ("xs", "number_filters algorithms posts", "{2} {1} the {0} numbers in xs"),
}  # fmt: skip
"""By family: the parameter, the slots, and the result in the words of the slots' parts."""


def compositions() -> Iterator[Composition]:
    """Yield all compositions, in a fixed order."""
    slots = _read_parts()
    # The other filters are trivial or slow on digits and ranges.
    slots["integer_filters"] = tuple(
        part
        for part in slots["number_filters"]
        if part.key not in ("negative", "digit", "nonnegative", "prime")
    )
    slots |= {f"integer_{name}": slots[f"number_{name}"][:8] for name in ("maps", "reducers")}
    for family, (argument, names, phrase) in _FAMILIES.items():
        for parts in product(*(slots[name] for name in names.split())):
            what = " ".join(phrase.format(*(part.words for part in parts)).split())
            yield Composition(family, argument, parts, what)
