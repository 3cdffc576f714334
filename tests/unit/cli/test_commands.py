"""Commands take the fields of dataclasses as options, and make the dataclasses from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest

from coding_model_project.cli import main, run_app
from coding_model_project.cli.commands import Commands, only
from coding_model_project.config_key import Option, argument, key, option, option_of
from tests.tables import tables
from tests.unit.cli.options import commands, options

CASES = tables("cli")


class Colour(StrEnum):
    red = "red"
    blue = "blue"


@dataclass
class Walls:
    size: int | None = key(None, "Walls.", option=Option("Paint N walls.", min=1, required=True))
    names: list[str] = option([], "Name a wall; repeatable.", "-w --wall")
    body: dict[str, Any] = option({}, "Add fields.", metavar="JSON")
    fast: bool = option(False, "Paint fast.")
    careful: bool = option(True, "Paint carefully.")
    colour: Colour = option(Colour.red, "Use this colour.", "--in")
    hidden: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    folder: Path = option(..., "Paint here.")
    height: float = option(2.5, "Paint N metres high.")
    width: float = 1.0


@pytest.fixture
def paint():
    """Run the command, and return its exit code and what it was called with."""
    app = Commands(add_completion=False)
    calls: list[dict[str, Any]] = []

    @app.command()
    def command(
        what: list[str] = argument([], "What to paint.", metavar="WHAT..."),
        *,
        walls: Walls,
        place: Annotated[Place, only("height", "folder")],
        dry: bool = option(False, "Print only."),
    ) -> None:
        calls.append({"what": what, "walls": walls, "place": place, "dry": dry})

    def run(*words: str) -> tuple[int, dict[str, Any]]:
        calls.clear()
        return run_app(app, "paint", words), calls[0] if calls else {}

    return run


def test_options_not_given_leave_the_defaults(paint):
    code, called = paint("--size", "3", "--folder", "x")
    given = {"walls": Walls(size=3), "place": Place(folder=Path("x"))}
    assert (code, called) == (0, {"what": [], "dry": False, **given})
    assert paint("--size", "3", "--folder", "x")[1]["walls"].names is not called["walls"].names


def test_options_fill_the_fields(paint):
    words = ["a", "b", "--size", "1", "-w", "n", "--wall", "s", "--body", '{"k": null}', "--fast"]
    code, called = paint(*words, "--no-careful", "--in", "blue", "--folder", "x", "--dry")
    assert code == 0
    assert called["what"] == ["a", "b"] and called["dry"] is True
    assert called["walls"] == Walls(
        size=1, names=["n", "s"], body={"k": None}, fast=True, careful=False, colour=Colour.blue
    )


@pytest.mark.parametrize(("words", "says"), CASES["wrong usage"])
def test_wrong_usage_is_one_line(paint, words, says, capsys):
    assert paint(*words) == (2, {})
    assert says in capsys.readouterr().err


def test_help_has_every_option_whole_at_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    pages = {}
    for name in {one.command for one in options()}:
        assert main([*name.split(), "--help"]) == 0
        pages[name] = capsys.readouterr().out
    assert [str(one) for one in options() if one.name not in pages[one.command]] == []


def test_an_option_is_written_once():
    @dataclass
    class Wall:
        size: int | None = option(None, option_of(Walls, "size"))

    assert option_of(Wall, "size") == Option("Paint N walls.", min=1)
    with pytest.raises(TypeError, match=r"Place\.width has no option"):

        @Commands().command()
        def command(place: Annotated[Place, only("width")]) -> None: ...


def test_every_option_says_what_it_does():
    assert [str(option) for option in options() if not option.help] == []


@pytest.mark.parametrize(("command", "before", "today"), CASES["old names"])
def test_old_names_are_still_taken(command, before, today):
    normalised = dict(commands())[command].context_settings["token_normalize_func"]
    assert (normalised(before), normalised("other")) == (today, "other")
