"""Verifiable instructions: examples, arguments, odd responses, and the publishers' verdicts."""

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project.errors import DataError, UngradableError
from coding_model_project.grading.extract import Rule
from coding_model_project.grading.instructions import (
    KINDS,
    MAX_CHARS,
    check_arguments,
    check_instructions,
    follows,
    follows_loosely,
    ifbench,
)
from coding_model_project.types import ErrorType, Instruction, Problem
from tests.fakes import FakeSandbox, judge_of
from tests.tables import tables

CASES = tables("instructions")

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
    assert {kind for kind, *_ in EXAMPLES} == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "response", "loose"),
    CASES["loose"],
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
WRONG = CASES["wrong"]


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


@settings(max_examples=30)
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


@pytest.mark.slow
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

    monkeypatch.setattr(ifbench, "sentence_count", times_out)
    with pytest.raises(UngradableError, match="the machine is overloaded"):
        follows("length_constraints:number_sentences", ONE_SENTENCE, "A response.")


@pytest.mark.slow
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


NO_COMMA = Instruction("punctuation:no_comma")
LOWERCASE = Instruction("change_case:english_lowercase")


def problem(*instructions: Instruction) -> Problem:
    return Problem(
        id="rules/1", split="train", statement="Write.", tests=(),
        instructions=instructions, language="text",
    )  # fmt: skip


def graded(given: Problem, completion: str):
    return asyncio.run(judge_of(FakeSandbox()).grade(given, completion))


def test_each_instruction_has_its_result_and_all_must_be_followed():
    both = problem(NO_COMMA, LOWERCASE)
    verdict = graded(both, "all of it is lower case")
    assert (verdict.passed, verdict.extraction) == (True, Rule.whole_text)
    verdict = graded(both, "No comma here")
    assert (verdict.passed, verdict.pass_fraction) == (False, 0.5)
    assert verdict.error is ErrorType.wrong_answer
    assert verdict.results[1].detail == "does not follow change_case:english_lowercase"


def test_reasoning_is_no_part_of_the_text():
    assert graded(problem(NO_COMMA), "<think>well, now</think>no comma").passed
    assert graded(problem(NO_COMMA), "<think>well, it never ends").error is ErrorType.no_code
    assert graded(problem(NO_COMMA), " \n").error is ErrorType.no_code


def test_loose_accuracy_leaves_out_a_first_line():
    verdict = graded(problem(NO_COMMA, LOWERCASE), "Sure, here:\nno comma and No capital")
    assert (verdict.passed, verdict.loose_passed) == (False, False)
    assert (verdict.pass_fraction, verdict.followed_loosely) == (0.0, 1)
    verdict = graded(problem(NO_COMMA), "Sure, here:\nno comma")
    assert (verdict.passed, verdict.loose_passed) == (False, True)
    assert graded(problem(NO_COMMA), "<think>never ends").loose_passed is False


def test_an_unknown_instruction_is_unusable_and_the_nearest_is_named():
    wrong = problem(Instruction("punctuation:no_coma"))
    with pytest.raises(DataError, match=r"rules/1: .*punctuation:no_comma"):
        graded(wrong, "x")
    with pytest.raises(DataError, match=r"rules/1"):
        check_instructions([wrong])
