"""Verifiable instructions: examples, arguments, odd responses, and the publishers' verdicts."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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
from coding_model_project.grading.instructions.verbs import starts_with_verb
from tests.unit.grading.instruction_examples import EXAMPLES, IFBENCH, IFEVAL, IFEVALG

SHARED = Path(__file__).parents[4] / "shared"
RECORDED = SHARED / "corpora" / "ifbench"
PROMPTS = SHARED / "data" / "IFBench_test.jsonl"

RECORDED_OTHERWISE = {
    (
        "258",
        "words:start_verb",
    ): '"Understand Galois theory by …" starts with a verb; the tagger says noun',
}
"""Verdicts of the publisher that its own prompt contradicts: a prompt's key and a kind, and why."""

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
    assert len({kind for kind, *_ in IFEVAL}) == 25
    assert len({kind for kind, *_ in IFBENCH}) == 58
    assert len({kind for kind, *_ in IFEVALG}) == 29


@pytest.mark.parametrize(
    ("strict", "loose"),
    [
        pytest.param("No comma.", True, id="as it is"),
        pytest.param("Sure, here:\nNo comma.", True, id="without the first line"),
        pytest.param("No comma.\nDone, bye.", True, id="without the last line"),
        pytest.param("Sure, here:\nNo comma.\nDone, bye.", True, id="without both"),
        pytest.param("One, two.", False, id="nothing else to try"),
        pytest.param("Sure, here:", False, id="what remains is blank"),
    ],
)
def test_the_loose_verdict_leaves_out_lines(strict, loose):
    assert follows_loosely("punctuation:no_comma", {}, strict) is loose


def test_the_loose_verdict_leaves_out_asterisks():
    bold = "**Sure:**\n*the end*"
    assert not follows("startend:end_checker", {"end_phrase": "the end"}, bold)
    assert follows_loosely("startend:end_checker", {"end_phrase": "the end"}, bold)


@pytest.mark.parametrize("blank", ["", " ", "\n\t ", "\u2003"])
def test_a_blank_response_follows_nothing(blank):
    for kind, arguments in ARGUMENTS.items():
        assert not follows(kind, arguments, blank), kind
        assert not follows_loosely(kind, arguments, blank), kind


WRONG = {
    "an unknown kind": ("punctuation:no_coma", {}, "did you mean punctuation:no_comma?"),
    "nothing like it": ("?", {}, "known: change_case:capital_word_frequency,"),
    "missing": ("count:numbers", {}, "count:numbers needs N; it takes N"),
    "None is missing": ("count:numbers", {"N": None}, "needs N"),
    "unknown": ("punctuation:no_comma", {"N": 1}, "does not take N; it takes none"),
    "misspelled": ("count:numbers", {"n": 1}, "does not take n; it takes N"),
    "a string for a number": ("count:numbers", {"N": "2"}, "N='2' is not a whole number"),
    "a fraction": ("count:numbers", {"N": 2.5}, "N=2.5 is not a whole number of at least 0"),
    "not finite": ("count:numbers", {"N": float("inf")}, "N=inf is not a whole number"),
    "a truth value": ("count:numbers", {"N": True}, "N=True is not a whole number"),
    "negative": ("count:numbers", {"N": -1}, "N=-1 is not a whole number of at least 0"),
    "the zeroth": (
        "sentence:keyword",
        {"word": "a", "N": 0},
        "N=0 is not a whole number of at least 1",
    ),
    "a percentage": ("ratio:stop_words", {"percentage": 101}, "is not a number from 0 to 100"),
    "a blank string": ("format:list", {"sep": " "}, "sep=' ' is not a string that is not blank"),
    "a word for a list": ("keywords:existence", {"keywords": "cat"}, "is not a list of strings"),
    "no words": ("keywords:existence", {"keywords": []}, "is not a list of strings"),
    "numbers for words": ("keywords:existence", {"keywords": [1]}, "is not a list of strings"),
    "a language": ("language:response_language", {"language": "xx"}, "is not a language code"),
    "no language": ("language:response_language", {"language": ["en"]}, "is not a language code"),
    "a relation": (
        "length_constraints:number_words",
        {"relation": "at most", "num_words": 3},
        """relation='at most' is not "less than" or "at least\"""",
    ),
    "two letters": (
        "keywords:letter_frequency",
        {"letter": "ab", "let_relation": "at least", "let_frequency": 1},
        "letter='ab' is not a single character",
    ),
    "the wrong way round": (
        "count:word_count_range",
        {"min_words": 9, "max_words": 3},
        "min_words=9 is more than max_words=3",
    ),
}


@pytest.mark.parametrize(("kind", "arguments", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_named_in_one_line(kind, arguments, message):
    for ask in (check_arguments, lambda kind, given: follows(kind, given, "A response.")):
        with pytest.raises(DataError) as error:
            ask(kind, arguments)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_arguments_that_are_none_are_dropped(kind):
    check_arguments(kind, ARGUMENTS[kind] | {"no_such_argument": None})


RESPONSES = st.one_of(
    st.text(st.characters(), max_size=60),
    st.text(".?!*-\n\"'[]{}()<>`, aA1\u3042\ud800\x00\ue000\ufe0f", max_size=60),
    st.lists(
        st.sampled_from(
            ["Question 1", "<i>", "</em>", "U.S. ", "P.S.", "```json", "Dr.", "😀", "***"]
        )
    ).map("".join),
)


@settings(max_examples=30, deadline=None)
@given(RESPONSES)
def test_no_response_raises(response):
    for kind, arguments in ARGUMENTS.items():
        assert follows(kind, arguments, response) in (True, False), kind
        assert follows_loosely(kind, arguments, response) >= follows(kind, arguments, response), (
            kind
        )


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
    hard, verdicts = "Hotel taxi OK: 3 km, sofa, radio", []
    asked = [(code, hard) for code in ("en", "it", "es", "fi", "sk", "tr", "et", "tl")] * 3

    def judge() -> None:
        verdicts.append(
            [
                follows("language:response_language", {"language": code}, text)
                for code, text in asked
            ]
        )

    threads = [threading.Thread(target=judge) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(verdicts) == 4
    assert all(one == verdicts[0] for one in verdicts)
    assert verdicts[0][:8] == verdicts[0][8:16]


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("Consider the sea", True),
        ("Is it so", True),
        ("Understand Galois", True),
        ("Nestled in hills", True),
        ("Tries to win", True),
        ("Use it", True),
        ("Classify fish", True),
        ("Time flies", False),
        ("Level 7", False),
        ("Roses bloom", False),
        ("Please write", False),
        ("Can you", False),
        ("Morning has", False),
        ("* Write", False),
        ("AI is", False),
        ("", False),
    ],
)
def test_verbs_at_the_start(words, verb):
    assert starts_with_verb(words.split()) is verb


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
    assert differ == set(RECORDED_OTHERWISE)


@pytest.mark.parametrize("name", ["IFBench_test.jsonl", "ifeval_input_data.jsonl"])
def test_the_arguments_of_all_published_prompts_are_accepted(name):
    for row in lines(SHARED / "data" / name):
        for kind, arguments in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            check_arguments(kind, arguments)
