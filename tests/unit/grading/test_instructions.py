"""Verifiable instructions: examples, arguments, odd responses, and the publishers' verdicts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project.errors import DataError, UngradableError
from coding_model_project.grading.instructions import (
    KINDS,
    MAX_CHARS,
    check_arguments,
    counts,
    follows,
    follows_loosely,
)

SHARED = Path(__file__).parents[4] / "shared"
RECORDED = SHARED / "corpora" / "ifbench"
PROMPTS = SHARED / "data" / "IFBench_test.jsonl"

RECORDED_OTHERWISE = {("258", "words:start_verb")}
"""Verdicts of the publisher that its own prompt contradicts: "Understand …" starts with a verb."""

FROZEN = Path(__file__).parents[2] / "frozen" / "instruction_examples.jsonl"
EXAMPLES = [json.loads(line) for line in FROZEN.read_text("utf-8").splitlines()]
"""A kind, its arguments, a response that follows and one that does not; none is of a data set."""
ONE_SENTENCE = {"relation": "at least", "num_sentences": 1}
ARGUMENTS = {kind: arguments for kind, arguments, _, _ in EXAMPLES}
IDS = [f"{kind}-{number}" for number, (kind, *_) in enumerate(EXAMPLES)]


@pytest.mark.parametrize(("kind", "arguments", "good", "bad"), EXAMPLES, ids=IDS)
def test_an_example_follows_and_its_counterpart_does_not(kind, arguments, good, bad):
    assert follows(kind, arguments, good)
    assert follows_loosely(kind, arguments, good)
    assert not follows(kind, arguments, bad)


def test_every_kind_has_an_example():
    assert {kind for kind, *_ in EXAMPLES} == KINDS


@pytest.mark.parametrize(
    ("kind", "response", "loose"),
    [
        ("punctuation:no_comma", "Sure, here:\nNo comma.", True),
        ("punctuation:no_comma", "No comma.\nDone, bye.", True),
        ("punctuation:no_comma", "Sure, here:\nNo comma.\nDone, bye.", True),
        ("punctuation:no_comma", "One, two.", False),
        ("punctuation:no_comma", "Sure, here:", False),
        ("startend:end_checker", "**Sure:**\n*the end*", True),
    ],
    ids=["first line", "last line", "both", "nothing to leave out", "all of it", "asterisks"],
)
def test_the_loose_verdict_leaves_out_lines_and_asterisks(kind, response, loose):
    arguments = {"end_phrase": "the end"} if "end" in kind else {}
    assert not follows(kind, arguments, response)
    assert follows_loosely(kind, arguments, response) is loose


@pytest.mark.parametrize("blank", ["", " ", "\n\t ", "\u2003"])
def test_a_blank_response_follows_nothing(blank):
    for kind, arguments in ARGUMENTS.items():
        assert not follows(kind, arguments, blank), kind
        assert not follows_loosely(kind, arguments, blank), kind


LIMITS = {"relation": "at most", "num_words": 3}
LETTER = {"letter": "ab", "let_relation": "at least", "let_frequency": 1}
WRONG = [
    ("punctuation:no_coma", {}, "did you mean punctuation:no_comma?"),
    ("?", {}, "known: change_case:"),
    ("count:numbers", {"N": None}, "needs N; it takes N"),
    ("punctuation:no_comma", {"N": 1}, "does not take N; it takes none"),
    *(("count:numbers", {"N": n}, f"N={n!r} is not") for n in ("2", 2.5, float("inf"), True, -1)),
    ("sentence:keyword", {"word": "a", "N": 0}, "at least 1"),
    ("ratio:stop_words", {"percentage": 101}, "from 0 to 100"),
    ("format:list", {"sep": " "}, "sep=' '"),
    *(("keywords:existence", {"keywords": one}, "a list of strings") for one in ("cat", [], [1])),
    *(("language:response_language", {"language": x}, "language code") for x in ("xx", ["en"])),
    ("length_constraints:number_words", LIMITS, '"less than" or "at least"'),
    ("keywords:letter_frequency", LETTER, "single character"),
    ("count:word_count_range", {"min_words": 9, "max_words": 3}, "max_words=3"),
]


@pytest.mark.parametrize(("kind", "arguments", "message"), WRONG)
def test_wrong_arguments_are_named_in_one_line(kind, arguments, message):
    for ask in (check_arguments, lambda kind, given: follows(kind, given, "A response.")):
        with pytest.raises(DataError) as error:
            ask(kind, arguments)
        assert message in str(error.value) and "\n" not in str(error.value)


def test_arguments_that_are_none_are_dropped():
    for kind, arguments in ARGUMENTS.items():
        check_arguments(kind, arguments | {"no_such_argument": None})


PARTS = ["Question 1", "<i>", "</em>", "U.S. ", "P.S.", "```json", "Dr.", "😀", "***"]
RESPONSES = (
    st.text(max_size=60)
    | st.text(".?!*-\n\"'[]{}()<>`, aA1\u3042\ud800\x00\ue000\ufe0f", max_size=60)
    | st.lists(st.sampled_from(PARTS)).map("".join)
)


@settings(max_examples=30, deadline=None)
@given(RESPONSES)
def test_no_response_raises(response):
    for kind, arguments in ARGUMENTS.items():
        strict = follows(kind, arguments, response)
        assert strict in (True, False), kind
        assert follows_loosely(kind, arguments, response) >= strict, kind


ODD = {
    "open brackets": "[" * 20_000,
    "open titles": "<<a" * 7_000,
    "stars": "*a\n" * 8_000,
    "blank lines": "a" + "\n" * 30_000 + "a",
    "nested JSON": "[" * 10_000 + "]" * 10_000,
    "a long number": "9" * 20_000,
    "ends of sentences": "! " * 10_000,
    "an open quote": 'ProductID,Category,Brand,Price,Stock\n"' + "!" * 20_000,
    "one long word": "a" * 30_000,
    "one long field": '"' + "a" * 140_000,
    "surrogates and NULs": "\ud800\x00 " * 5_000,
    "returns": "a,b\rc\r\n" * 2_000,
    "too long": "a " * MAX_CHARS,
}


@pytest.mark.parametrize("response", ODD.values(), ids=ODD)
def test_odd_responses_take_no_long_time(response):
    for kind, arguments in ARGUMENTS.items():
        started = time.process_time()
        follows(kind, arguments, response)
        assert time.process_time() - started < 2.0, kind


def test_a_response_that_is_too_long_follows_nothing():
    assert follows("punctuation:no_comma", {}, "a" * MAX_CHARS)
    assert not follows("punctuation:no_comma", {}, "a" * (MAX_CHARS + 1))
    assert not follows_loosely("punctuation:no_comma", {}, "b\n" + "a" * MAX_CHARS)


def test_json_that_is_nested_too_deeply_is_none():
    assert follows("detectable_format:json_format", {}, "[" * 50 + "]" * 50)
    assert not follows("detectable_format:json_format", {}, "[" * 200_000 + "]" * 200_000)


def test_too_many_sentences_to_split_follow_nothing():
    kind = "length_constraints:number_sentences"
    assert follows(kind, ONE_SENTENCE, "Go on. " * 100)
    assert not follows(kind, ONE_SENTENCE, "! " * 6_000)


def test_a_machine_that_is_too_slow_gives_no_verdict(monkeypatch):
    def times_out(_: str) -> int:
        raise TimeoutError

    monkeypatch.setattr(counts, "sentence_count", times_out)
    with pytest.raises(UngradableError, match="the machine is overloaded"):
        follows("length_constraints:number_sentences", ONE_SENTENCE, "A response.")


def test_verdicts_are_the_same_in_every_thread_and_time():
    """langdetect draws at random, and its profiles are loaded by whichever thread is first."""
    hard, codes = (
        "Hotel taxi OK: 3 km, sofa, radio",
        ["en", "it", "es", "fi", "sk", "tr", "et", "tl"],
    )

    def judge(_: int) -> list[bool]:
        kind = "language:response_language"
        return [follows(kind, {"language": code}, hard) for code in codes]

    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(judge, range(12)))
    assert all(one == verdicts[0] for one in verdicts)


def test_importing_loads_no_library_of_the_extra():
    libraries = "{'nltk', 'langdetect', 'emoji', 'syllapy', 'torch', 'numpy'}"
    module = "coding_model_project.grading.instructions"
    program = f"import sys, {module}; print({libraries} & set(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"


def lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        pytest.skip(f"{path} is not here: the publisher's data lies beside a checkout")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("file", "judge"),
    [("eval_results_strict.jsonl", follows), ("eval_results_loose.jsonl", follows_loosely)],
    ids=["strict", "loose"],
)
def test_verdicts_are_those_that_the_publisher_recorded(file, judge: Callable[..., bool]):
    prompts = {row["prompt"]: row for row in lines(PROMPTS)}
    differ = set()
    for recorded in lines(RECORDED / file):
        asked = prompts[recorded["prompt"]]
        pairs = zip(asked["instruction_id_list"], asked["kwargs"], strict=True)
        for (kind, arguments), expected in zip(
            pairs, recorded["follow_instruction_list"], strict=True
        ):
            if judge(kind, arguments, recorded["response"]) is not expected:
                differ.add((asked["key"], kind))
    assert differ == RECORDED_OTHERWISE


@pytest.mark.parametrize("name", ["IFBench_test.jsonl", "ifeval_input_data.jsonl"])
def test_the_arguments_of_all_published_prompts_are_accepted(name):
    for row in lines(SHARED / "data" / name):
        for kind, arguments in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            check_arguments(kind, arguments)
