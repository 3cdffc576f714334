"""The commands and options of the command line, as typer knows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from coding_model_project.cli import app


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of a command."""

    command: str
    """Such as "harbor grade"."""
    names: tuple[str, ...]
    """Such as ("-n", "--per-problem")."""
    help: str

    @property
    def name(self) -> str:
        return max(self.names, key=len)

    def __str__(self) -> str:
        return f"{self.command} {self.name}"


def commands(here: Any = None, name: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command and group by name; the program itself is ""."""
    here = typer.main.get_command(app) if here is None else here
    yield " ".join(name), here
    for word, inner in getattr(here, "commands", {}).items():
        yield from commands(inner, (*name, word))


def options() -> list[Option]:
    """All options but --help."""
    return [
        Option(command=name, names=(*one.opts, *one.secondary_opts), help=one.help or "")
        for name, command in commands()
        for one in command.params
        if one.param_type_name == "option" and one.name != "help"
    ]
