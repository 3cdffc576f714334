"""Patterns of files to ignore: pathspec's decisions, in linear time."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from coding_model_project.harbor.format.ignoring import Ignored

WORDS = st.text("ab*?[]!^-\\. #", max_size=6) | st.sampled_from(
    ["**", "*", "a", "b", "*.a", "[!a]b", ""]
)
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=4).map("/".join), min_size=1, max_size=4)
PATHS = st.lists(st.text("ab.-", min_size=1, max_size=3), min_size=1, max_size=4).map("/".join)


@given(LINES, PATHS, st.sampled_from(["", "/"]))
def test_decisions_are_pathspecs(lines, path, end):
    try:
        spec = GitIgnoreSpec.from_lines(lines)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            Ignored(lines)
        return
    except re.error:  # [b-a], which Git ignores
        return
    path = path.replace("./", "x/").removesuffix(".") or "a"
    assert Ignored(lines).decide(path + end) is spec.check_file(path + end).include


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 40 + "b", "a" * 200),
        ("a*" * 40 + "b", "a" * 200),
        ("/".join(["**/a"] * 40) + "/b", "/".join("a" * 200)),
        ("?*" * 40 + "b", "a" * 200),
    ],
)
def test_a_pattern_of_many_stars_takes_no_longer(pattern, path):
    started = time.process_time()
    assert Ignored([pattern]).decide(path) is None
    assert time.process_time() - started < 1
