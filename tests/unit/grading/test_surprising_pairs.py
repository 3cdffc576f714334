"""The table of docs/grading.md, line by line."""

import math
import re
from pathlib import Path

import numpy
import pytest

from coding_model_project import codec
from coding_model_project.grading.compare import same_output, same_value

PAGE = Path(__file__).parents[3] / "docs" / "grading.md"
_ROW = re.compile(r"\| `(?P<expected>.+?)` \| `(?P<got>.+?)` \| (?P<same>yes|no) \|")
_PART = re.compile(r"\| \*\*(?:values of calls|standard output, `(?P<mode>\w+)`)\*\* \|")


def rows():
    mode = None
    for line in PAGE.read_text().splitlines():
        if part := _PART.match(line):
            mode = part["mode"] or "value"
        if row := _ROW.match(line):
            yield pytest.param(mode, *row.groups(), id=f"{mode}: {row['expected']} {row['got']}")


def python(text):
    return eval(text, {"nan": math.nan, "inf": math.inf, "numpy": numpy})


@pytest.mark.parametrize(("mode", "expected", "got", "same"), rows())
def test_a_pair_is_as_the_page_says(mode, expected, got, same):
    expected, got = python(expected), python(got)
    if mode == "value":
        crossed = codec.loads(codec.dumps(got))  # as it comes from the sandbox
        assert same_value(expected, crossed) is (same == "yes")
    else:
        assert same_output(expected, got, mode) is (same == "yes")


def test_the_page_has_all_parts():
    modes = [row.values[0] for row in rows()]
    assert {mode: modes.count(mode) > 2 for mode in modes} == dict.fromkeys(
        ["value", "tokens", "lines", "codecontests", "exact"], True
    )
    assert len(modes) > 80
