"""The effect of one override of a main_ppo command."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
