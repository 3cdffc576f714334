"""A command's keys in verl's main_ppo, for people and in one JSON line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coding_model_project.doctor.verl_command import MAIN_PPO, Command, read
from coding_model_project.launch.verl_keys import tree
from coding_model_project.launch.verl_keys.effects import examine
from coding_model_project.launch.verl_keys.found import LEAVE_OUT, Effect, Found
from coding_model_project.launch.verl_keys.table import checked_for

FAULTS = (Effect.refused, Effect.missing, Effect.late, Effect.ignored)
"""Effects that a user wants to know before starting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A command with the effects of its keys."""

    command: Command
    found: tuple[Found, ...]

    def of(self, effect: Effect) -> list[str]:
        return list(dict.fromkeys(one.key for one in self.found if one.effect is effect))


def check(given: str) -> list[Checked]:
    """Check the commands in a file or text.

    Raises:
        ConfigError: there is none, or verl is not installed.
    """
    return [
        Checked(command=one, found=tuple(examine(one.overrides, one.config_name, one.own)))
        for one in read(given)
    ]


def as_json(checked: Sequence[Checked]) -> dict[str, Any]:
    """Return the effects of all commands in the fixed form."""
    lists = {
        name: list(dict.fromkeys(key for one in checked for key in one.of(Effect(name))))
        for name in ("refused", "ignored", "late")
    }
    write = {f.key: f.write for one in checked for f in one.found if f.effect in FAULTS}
    return {"verl": tree.version(), "entry": checked[-1].command.entry, **lists, "write": write}


def is_faulty(checked: Sequence[Checked]) -> bool:
    return any(found.effect in FAULTS for one in checked for found in one.found)


def as_text(checked: Sequence[Checked]) -> Iterator[str]:
    """Yield lines about each command: keys that are not simply taken, and what to write instead."""
    if tree.version() != checked_for():
        known = f"keys that nobody reads were checked for {checked_for()}"
        yield f"verl {tree.version()} is installed; {known}"
    for one in checked:
        counts = {effect: len(one.of(effect)) for effect in Effect}
        shown = ", ".join(f"{count} {effect}" for effect, count in counts.items() if count)
        yield f"{one.command.entry}, {one.command.config_name}, verl {tree.version()}: {shown}"
        if one.command.entry != MAIN_PPO:
            yield f"  the keys are compared with those of {MAIN_PPO}"
        for effect in (*FAULTS, Effect.warned, Effect.off):
            for found in (found for found in one.found if found.effect is effect):
                yield f"{effect:<8} {found.given or found.key}" + (
                    f": {found.why}" if found.why else ""
                )
                if effect in FAULTS:
                    here = (
                        ""
                        if found.here in ("", found.write)
                        else f"; our recipes: {_line(found.here)}"
                    )
                    yield f"         → {_line(found.write)}{here}"


def _line(line: str) -> str:
    return line if line == LEAVE_OUT else f"`{line}`"
