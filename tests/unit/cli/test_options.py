"""Options of the command line: each is explained, and names of earlier versions still work."""

import pytest

from tests.unit.cli.options import commands, options


def test_every_option_says_what_it_does():
    assert [str(option) for option in options() if not option.help] == []


@pytest.mark.parametrize(
    ("command", "before", "today"),
    [
        ("harbor grade", "concurrency", "workers"),
        ("harbor grade", "job", "out"),
        ("harbor eval", "concurrency", "workers"),
        ("harbor bench", "concurrency", "workers"),
        ("config reference", "write", "out"),
    ],
)
def test_old_names_are_still_taken(command, before, today):
    normalised = dict(commands())[command].context_settings["token_normalize_func"]
    assert (normalised(before), normalised("other")) == (today, "other")
