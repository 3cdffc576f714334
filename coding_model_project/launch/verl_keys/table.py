"""Reader of table.yaml: keys that verl ignores or has renamed, with the line to write instead."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

LEGACY_GROUPS = ("custom_reward_function", "reward_model", "sandbox_fusion")
"""Groups of verl's tree that main_ppo accepts and does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table; table.yaml describes the fields."""

    keys: tuple[str, ...]
    values: tuple[str, ...] = ()
    unread: bool = False
    why: str = ""
    write: str = ""
    here: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The lines to write instead of an override; an empty line means to leave it out."""

    unread: bool
    why: str
    write: str
    here: str


@functools.cache
def _table() -> tuple[str, tuple[str, ...], tuple[Row, ...]]:
    found: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("table.yaml")))
    rows = [{name: _frozen(value) for name, value in row.items()} for row in found["rows"]]
    return found["checked_for"], tuple(found["read"]), tuple(Row(**row) for row in rows)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def checked_for() -> str:
    """Return the version of verl for which the table was checked."""
    return _table()[0]


def is_read(key: str) -> bool:
    """Return whether verl reads a key that its tree lacks."""
    return any(_rest(pattern, key) is not None for pattern in _table()[1])


def advice(key: str, value: str) -> Advice | None:
    """Return the table's advice for an override, if it has any."""
    for row in _table()[2]:
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
