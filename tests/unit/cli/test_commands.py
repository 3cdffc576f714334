"""Commands take the fields of dataclasses as options, and make the dataclasses from them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest

import coding_model_project.cli as cli
from coding_model_project.cli import main, run_app
from coding_model_project.cli.commands import Commands, only
from coding_model_project.config_key import Option, argument, key, option, option_of
from coding_model_project.extras import MODULE, RECIPES, SCRIPT, program
from tests import fresh
from tests.processes import ran
from tests.tables import tables
from tests.text_cases import sources
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
    loads: dict[str, float] = option({}, "Bear N kg.", "--load", metavar="NAME=N")
    dyes: dict[str, str] = option({}, "Dye this colour.", "--dye", metavar="FROM=TO")
    variables: dict[str, str] = option({}, "Set it.", "--set", metavar="NAME=VALUE")
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
    words += ["--load", "roof=2.5", "--dye", "red=dark=blue", "--set", "A=", "--set", "B=1"]
    code, called = paint(*words, "--no-careful", "--in", "blue", "--folder", "x", "--dry")
    assert code == 0
    assert called["what"] == ["a", "b"] and called["dry"] is True
    assert called["walls"] == Walls(
        size=1,
        names=["n", "s"],
        body={"k": None},
        loads={"roof": 2.5},
        dyes={"red": "dark=blue"},
        variables={"A": "", "B": "1"},
        fast=True,
        careful=False,
        colour=Colour.blue,
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


# ── commands answer at once, fail in one line, and exit as documented ─────────────────────────────


SOURCES = sources(__file__)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["coding_model_project", "recipes.sft"])
def test_a_reader_that_has_seen_enough_ends_it_without_a_word(program):
    """The reader closes early, like `--help | head -3`; a recipe's page is buffered until the end."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", program, "--help"]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, env=environment, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(("arguments", "says"), CASES["wrong commands"])
def test_wrong_usage_is_one_line_and_exit_2(arguments, says, capsys):
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert len(error.splitlines()) == 1
    assert says in error


ROOT = Path(__file__).parents[3]
HEAVY = {"numpy", "pyarrow", "hydra", "omegaconf", "httpx", "torch", "ray", "verl", "vllm", "scipy"}
"""pydantic is not among them: typer itself imports it."""

EVERY_HELP = SOURCES["every help"]


def as_script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The console script, which need not be installed for it."""
    code = "import sys; from coding_model_project.cli import main; "
    code += f"sys.argv[0] = '/bin/{SCRIPT}'; sys.exit(main())"
    command = [fresh.python(), "-c", code, *arguments]
    given = {**os.environ, "COLUMNS": "100", **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=given)


@pytest.mark.slow
def test_no_help_page_imports_what_only_work_needs():
    done = ran([sys.executable, "-c", EVERY_HELP])
    assert done.returncode == 0, done.stderr
    shown, *modules = done.stdout.split()
    assert int(shown) > 30
    assert HEAVY & set(modules) == set()


def test_the_help_page_names_each_command_and_each_recipe(capsys):
    assert cli.main(["--help"]) == 0
    page = capsys.readouterr().out
    recipes = {file.parent.name for file in ROOT.glob("recipes/*/__main__.py")}
    assert set(RECIPES) == recipes
    for name in recipes:
        assert f"python -m recipes.{name} " in page
    titles = ["\nJudge:", "\nData:", "\nEvaluate:", "\nTrain:", "\nRuns:"]
    assert [page.index(title) for title in titles] == sorted(page.index(title) for title in titles)
    assert "─ Commands" not in page, "a command of the first level needs a rich_help_panel"


@pytest.mark.slow
def test_the_program_is_called_as_it_was_started(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/venv/bin/coding-model"])
    assert program() == SCRIPT
    monkeypatch.setattr(sys, "argv", ["/site-packages/coding_model_project/__main__.py"])
    assert program() == MODULE
    page = as_script("grade", "--help").stdout
    assert "Usage: coding-model grade" in page


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_for_the_console_script(shell):
    # Else typer asks which shell has started the tests, and that may be none that it knows.
    done = as_script("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0, done.stderr
    assert "_CODING_MODEL_COMPLETE" in done.stdout and "python -m" not in done.stdout


@pytest.mark.slow
def test_a_shell_completes_commands():
    done = as_script(
        _CODING_MODEL_COMPLETE="complete_bash", COMP_WORDS="coding-model sandbox ch", COMP_CWORD="2"
    )
    assert (done.returncode, done.stdout.split()) == (0, ["check"])
