"""Commands answer at once, fail in one line, and exit as documented."""

import os
import subprocess
import sys

import pytest

import coding_model_project.cli as cli


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["grade"], "--completions"),
        (["grade", "--problems", "/nowhere", "--completions", "x", "--out", "y"], "/nowhere"),
        (["grade", "--nonsense"], "--nonsense"),
        (["nonsense"], "nonsense"),
        (["sandbox", "check", "--min-tier", "steel"], "'rlimit', 'seccomp', 'namespaces'"),
        (["sandbox", "run", "/nowhere.py"], "/nowhere.py"),
        (["data", "prepare", "mbpp"], "tinycode"),
        (["data", "preflight", "nothing_known"], "nothing_known=PATH"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments, says, capsys):
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert len(error.splitlines()) == 1
    assert says in error
