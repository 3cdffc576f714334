"""Commands answer at once, fail in one line, and exit as documented."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import coding_model_project.cli as cli
from coding_model_project.extras import MODULE, RECIPES, SCRIPT, program
from tests import fresh
from tests.processes import ran
from tests.tables import tables
from tests.text_cases import sources

CASES = tables("cli")

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
