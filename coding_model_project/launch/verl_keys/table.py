"""Effects of overrides, and table.yaml: keys that verl ignores or has renamed, with their successors."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

LEAVE_OUT = "leave out"
"""The advice to delete a key."""


class Effect(StrEnum):
    """The ways in which verl treats a key."""

    taken = "taken"
    off = "off"
    """Read only if another key switches it on."""
    warned = "warned"
    """verl replaces the value, and its log says so."""
    ignored = "ignored"
    """Accepted and read by nobody, without a word."""
    late = "late"
    """The command fails after Ray has started, mostly after models are loaded."""
    refused = "refused"
    """Hydra or verl's validation refuses the command at once."""
    missing = "missing"
    """Not in the command, which fails without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The effect of one override."""

    key: str
    given: str
    """The override as written; empty for a missing key."""
    effect: Effect
    why: str = ""
    write: str = ""
    """The line to write for main_ppo; empty to keep it."""
    here: str = ""
    """The line to write for this package's recipes."""


LEGACY_GROUPS = ("custom_reward_function", "reward_model", "sandbox_fusion")
"""Groups of verl's tree that main_ppo accepts and does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table; table.yaml describes the fields."""

    keys: Sequence[str]
    values: Sequence[str] = ()
    unread: bool = False
    why: str = ""
    write: str = ""
    here: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """A key with one of some words; table.yaml describes the fields."""

    key: str
    words: Sequence[str]
    why: str
    write: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    extensible: bool = False

    def instead(self, word: str) -> str:
        """Return a right word itself, or a variable, and for any other one the word to write."""
        if not word or word in self.words or word.startswith("$"):
            return word
        near = difflib.get_close_matches(word, self.words, n=1, cutoff=0.5)
        return self.renamed.get(word) or next(iter(near), self.words[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The lines to write instead of an override; an empty line means to leave it out."""

    unread: bool
    why: str
    write: str
    here: str


@functools.cache
def _table() -> dict[str, Any]:
    found: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("table.yaml")))
    return found | {"rows": [Row(**row) for row in found["rows"]]}


def checked_for() -> str:
    """Return the version of verl for which the table was checked."""
    return _table()["checked_for"]


def words() -> list[Words]:
    """Return the keys that have one of some words."""
    return [Words(**row) for row in _table()["words"]]


def is_read(key: str) -> bool:
    """Return whether verl reads a key that its tree lacks."""
    return any(_rest(pattern, key) is not None for pattern in _table()["read"])


def advice(key: str, value: str) -> Advice | None:
    """Return the table's advice for an override, if it has any."""
    for row in _table()["rows"]:
        rests = [rest for rest in (_rest(pattern, key) for pattern in row.keys) if rest is not None]
        if rests and (not row.values or value.strip("'\"").lower() in row.values):
            last, tail = key.rpartition(".")[2], key.partition(".")[2]
            names = {"key": key, "rest": rests[0], "last": last, "tail": tail, "value": value}
            write = row.write.format(**names)
            here = write if row.here == "same" else row.here.format(**names)
            return Advice(unread=row.unread, why=row.why, write=write, here=here)
    return None


def _rest(pattern: str, key: str) -> str | None:
    """Return what `*` stands for ("" without one) if a key fits a pattern."""
    found = re.fullmatch(re.escape(pattern).replace(r"\*", "(.+)"), key)
    return None if found is None else "".join(found.groups())
