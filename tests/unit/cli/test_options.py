"""An option has the same meaning and help text in every command."""

import re
from collections import defaultdict

import pytest

from coding_model_project.cli import common
from coding_model_project.cli.common import renamed
from tests.unit.cli.options import commands, options

SHARED = (
    "--dataset", "--problems", "--data-dir", "--map", "--limit", "--max-tests", "--mutants", "--path",
    "--seed", "--per-problem", "--tokenizer", "--workers", "--min-tier", "--json", "--environment",
    "--host", "--every",
)  # fmt: skip
NOUNS = {"--workers": ("programs", "trials"), "--limit": ("problems", "tasks")}
"""Nouns that may differ between commands in the same help text."""
OWN_WORDS: set[str] = set()
"""Modules that do not use cli/common.py for their options yet; the list may only shrink."""
GONE = {
    "--concurrency": "--workers",
    "--job": "--out",
    "--write": "--out",
    "--n-workers": "--workers",
}


@pytest.mark.parametrize("name", SHARED)
def test_the_same_option_has_the_same_words(name):
    found = defaultdict(list)
    for option in options():
        if option.name == name and option.module not in OWN_WORDS:
            words = re.split(r"[;.] ", f"{option.help} ")[0]
            for noun in NOUNS.get(name, ()):
                words = words.replace(noun, "…")
            found[words].append(str(option))
    assert len(found) == 1, f"take it from cli/common.py: {dict(found)}"


def test_every_option_says_what_it_does():
    assert [str(option) for option in options() if not option.help] == []


def test_help_starts_with_a_verb():
    nouns = (
        "The ",
        "A ",
        "An ",
        "Of ",
        "Where ",
        "Which ",
        "How ",
        "Its ",
        "At most",
        "Only ",
        "[",
    )
    wrong = [
        f"{one}: {one.help}"
        for one in options()
        if one.help.startswith(nouns) and one.module not in OWN_WORDS
    ]
    assert wrong == []


def test_names_that_were_given_up_do_not_come_back():
    at_once = "eval run --concurrency"  # requests to a model, beside --workers of the judge
    found = [
        f"{one}: say {GONE[one.name]}"
        for one in options()
        if one.name in GONE and str(one) != at_once
    ]
    assert found == []


def test_old_names_are_still_taken():
    old = {
        ("harbor grade", "concurrency"): "workers",
        ("harbor grade", "job"): "out",
        ("harbor eval", "concurrency"): "workers",
        ("harbor bench", "concurrency"): "workers",
        ("config reference", "write"): "out",
    }
    known = dict(commands())
    for (name, before), today in old.items():
        normalised = known[name].context_settings["token_normalize_func"]
        assert (normalised(before), normalised("other")) == (today, "other")
    assert renamed(old_name="new_name")["token_normalize_func"]("old-name") == "new-name"


def test_a_data_set_is_named_alike_everywhere():
    given = [("mbpp", None), ("mbpp=x.jsonl", None), ("mbpp", "x.jsonl")]
    assert [common.given_dataset(*one) for one in given] == [
        ("mbpp", None),
        ("mbpp", "x.jsonl"),
        ("mbpp", "x.jsonl"),
    ]
