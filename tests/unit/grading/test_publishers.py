"""Each rule gives the verdicts of its publisher's harness.

`tests/frozen/publishers.jsonl.gz` holds pairs of texts in 63 kinds with the verdicts of all nine
harnesses; the first line names the harnesses. The rules agree on all pairs, so no kind is excused.
"""

import gzip
import json
import time
import tracemalloc
from itertools import islice, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.grading.publishers import (
    CLASSES,
    COMPARISONS,
    difference,
    extracted_by_livecodebench,
)
from tests import publisher_table
from tests.strategies import TEXTS
from tests.tables import tables

CASES = tables("publishers")

FROZEN = Path(__file__).parents[2] / "frozen" / "publishers.jsonl.gz"


@pytest.fixture(scope="module")
def verdicts():
    """Publishers, and rows of kind, expected, got, and a string with a 0 or 1 per publisher."""
    with gzip.open(FROZEN, "rt", encoding="utf-8") as lines:
        publishers, *rows = map(json.loads, lines)
    assert len(rows) > 3000
    return publishers, rows


def test_all_rules_have_verdicts_of_their_harness(verdicts):
    assert set(COMPARISONS) <= set(verdicts[0])


@pytest.mark.parametrize("publisher", COMPARISONS)
def test_a_rule_agrees_with_its_publishers_harness(publisher, verdicts):
    publishers, rows = verdicts
    at = publishers.index(publisher)
    compare = COMPARISONS[publisher]
    assert [
        (kind, expected, got)
        for kind, expected, got, given in rows
        if compare(expected, got) is not (given[at] == "1")
    ] == []


@pytest.mark.parametrize(("name", "expected", "got"), CASES["differences"])
def test_a_difference_has_a_name(name, expected, got):
    assert difference(expected, got) == name


def test_most_disagreements_have_a_name(verdicts):
    """A pair on which harnesses disagree is never left unexplained."""
    _, rows = verdicts
    unexplained = [
        (expected, got)
        for _, expected, got, given in rows
        if len(set(given)) > 1 and difference(expected, got) == "otherwise"
    ]
    assert unexplained == []


@pytest.mark.parametrize(("answer", "program"), CASES["last_fences"])
def test_livecodebench_takes_what_is_between_the_last_two_fences(answer, program):
    assert extracted_by_livecodebench(answer) == program


WORDS = st.sampled_from([
    "1", "01", "1.0", "-0", "1_0", "1e400", "1e-999999999999999999999", "0x1p9999", "9" * 400,
    "sNaN", "nan", "INF", "٣", "²", "a", "ab", "İ", "Σ", ".", "\x00", "\ud800",
])  # fmt: skip
HOSTILE = st.lists(
    WORDS | TEXTS | st.sampled_from((" ", "\n", "\r", "\t", "\x0b", "\x0c", "\xa0", "\u2028")),
    max_size=6,
).map("".join)


@given(HOSTILE, HOSTILE)
def test_no_text_raises(expected, got):
    for same in COMPARISONS.values():
        assert isinstance(same(expected, got), bool)
    assert difference(expected, got) in CLASSES
    assert extracted_by_livecodebench(got) in (None, "") or "```" in got


@given(
    st.lists(
        st.lists(st.text("aB1.-e", min_size=1, max_size=6), min_size=1, max_size=4), max_size=4
    )
)
def test_a_text_equals_itself(lines):
    text = "\n".join(map(" ".join, lines))
    for same in COMPARISONS.values():
        assert same(text, text)
        assert same(text + "\n", text)


@pytest.mark.slow
def test_a_wrong_output_of_full_length_is_not_kept_as_sets():
    """A set of each of 150,000 lines or words took more than 100 MB of the judge."""
    words = map("".join, islice(permutations("abcdefghijklmnopqrstuvwxyz", 6), 150_000))
    got = "\n".join(words)
    for publisher, same in COMPARISONS.items():
        tracemalloc.start()
        assert not same("1\n2\n", got)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 50 << 20, publisher


LENGTH = 50_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    ["9", "1 ", "1\n", "1e308\n", "1e999999999999999999 ", "ab\n", "0x", "1_", "```\n", "nan "],
)
def test_work_is_bounded(unit):
    """Quadratic work on texts of this length would take more than a minute."""
    text = unit * (LENGTH // len(unit))
    start = time.process_time()
    for expected, got in [(text, text + "1"), ("1" + text, text), ("1\n", text)]:
        for same in COMPARISONS.values():
            same(expected, got)
        difference(expected, got)
    extracted_by_livecodebench(text)
    assert time.process_time() - start < 15


def test_the_page_is_up_to_date():
    assert publisher_table.PAGE.read_text() == publisher_table.page()
