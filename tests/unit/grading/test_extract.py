"""Extraction of programs from completions in all forms that models write."""

import gc
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.grading.extract import (
    MAX_CHARACTERS,
    Rule,
    extract,
    extract_for,
    first_block,
    is_one_block,
)
from coding_model_project.types import Asserts, Call, Problem, Stdin, Test
from tests.bench.extraction import KINDS, WAYS
from tests.tables import tables

CASES = tables("extraction")

CODE = "print(1)\n"


@pytest.mark.parametrize(("completion", "code", "rule"), CASES["fenced"])
def test_fenced(completion, code, rule):
    found = extract(completion)
    assert (found.code, found.rule) == (code, rule)


# ── reasoning ─────────────────────────────────────────────────────────────────────────────────────

ANSWER = f"```python\n{CODE}```"
WRONG = "```python\nwrong\n```"


@pytest.mark.parametrize("completion", CASES["thought"])
def test_what_is_thought_is_no_answer(completion):
    assert extract(completion).code == CODE


@pytest.mark.parametrize("completion", CASES["never_came"])
def test_an_answer_that_never_came(completion):
    found = extract(completion)
    assert (found.code, found.rule) == (None, Rule.unclosed_think)


@pytest.mark.parametrize(
    "marker",
    ["<think>", "</think>", "<think></think>", "[BEGIN]", "[DONE]", "[BEGIN]\nx\n[DONE]", "```"],
)
@pytest.mark.parametrize("program", CASES["marker literal"])
@pytest.mark.parametrize(
    "before", ["", "So:\n\n", "<think>\nx\n</think>\n", f"{WRONG}\n</think>\n"]
)
def test_a_marker_in_a_literal_is_text(marker, program, before):
    if "\n" in marker and "\n{}\n" not in program:
        return
    code = program.replace("{}", marker)
    compile(code, "here", "exec")
    assert extract(f"{before}```python\n{code}```\nDone.").code == code
    assert extract(f"{before}[BEGIN]\n{code}[DONE]\nDone.").code == code
    if before != "So:\n\n":
        assert extract(f"{before}{code}", bare=True).code.strip() == code.strip()


def test_markers_in_literals_of_other_languages_once_the_answer_has_come():
    for language, code in (("cpp", 'puts("</think>");\n'), ("javascript", "f(`a </think> b`)\n")):
        assert extract(f"```{language}\n{code}```", language=language).code == code
        thought = f"<think>\nx\n</think>\n```{language}\n{code}```"
        assert extract(thought, language=language).code == code


# ── [BEGIN] and [DONE] ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("completion", "code"), CASES["marked"])
def test_done_ends_what_begin_began(completion, code):
    assert extract(completion).code == code


@pytest.mark.parametrize(("completion", "code"), CASES["bare"])
def test_bare(completion, code):
    assert extract(completion, bare=True).code == code


def test_bare_text_counts_only_where_it_was_asked_for():
    assert extract(CODE).code is None


# ── which of several blocks ───────────────────────────────────────────────────────────────────────


def problem(*inputs, language="python", **more):
    tests = tuple(Test(one, expected="") for one in inputs)
    return Problem(id="t/1", split="t", statement="", tests=tests, language=language, **more)


FUNCTION = "def solve(x):\n    return x + 1\n"
USE = "```python\nprint(solve(1))\n```"
AFTER = CASES["after"]
SCRIPT = "import sys\nn = int(sys.stdin.readline())\nprint(n + 1)\n"


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("tag", ["python", ""])
@pytest.mark.parametrize(
    ("code", "asked"),
    [
        (FUNCTION, problem(Call("solve", (1,)))),
        (FUNCTION, problem(Asserts("assert solve(1) == 2", "solve"))),
        (FUNCTION, problem(Asserts("assert set(solve(1)) == 2"))),
        (FUNCTION, problem(Asserts("check(solve)"), entry_point="solve")),
        ("class Solution:\n  def solve(self, x):\n    return x\n", problem(Call("solve", (1,)))),
        ("class Box:\n    pass\n", problem(Call("Box.solve", (1,)))),
        ("solve = lambda x: x\n", problem(Call("solve", (1,)))),
        (SCRIPT, problem(Stdin("1"))),
        ("def main():\n    print(input())\nmain()\n", problem(Stdin("1"))),
        ("print(open(0).read())\n", problem(Stdin("1"))),
    ],
)
def test_a_block_that_fits_the_tests_goes_before_later_ones(code, asked, tag, after):
    assert extract_for(asked, f"```{tag}\n{code}```\nUse:\n{after}\nDone.").code == code


def test_of_blocks_that_fit_the_last_one_counts():
    asked = problem(Call("solve", (1,)))
    fixed = FUNCTION.replace("1", "2")
    text = f"```python\n{FUNCTION}```\nWrong. Fixed:\n```python\n{fixed}```\nUse: {USE}"
    assert extract_for(asked, text).code == fixed
    broken = "def solve(x)\n    return x\n"
    assert extract_for(asked, f"```python\n{FUNCTION}```\n```python\n{broken}```").code == broken
    assert extract_for(asked, f"```python\n{FUNCTION}```\n```\n{fixed}```").code == FUNCTION


def test_where_none_fits_the_last_tagged_block_counts():
    asked = problem(Call("solve", (1,)))
    text = "```python\na = 1\n```\n```python\nb = 1\n```\n```\nc = 1\n```"
    assert extract_for(asked, text).code == "b = 1\n"


def test_other_languages_by_their_tags():
    text = f"```c++\nint x;\n```\n```python\n{CODE}```"
    assert extract(text, language="cpp").code == "int x;\n"
    for language, tag in (("cpp", "cc"), ("c++", "cpp"), ("javascript", "js"), ("bash", "sh")):
        found = extract(f"```{tag}\nx\n```\n```python\n{CODE}```", language=language)
        assert (found.code, found.rule) == ("x\n", Rule.tagged_block)
    main = "int main() {}\n"
    text = f"```cpp\n{main}```\nHelper:\n```cpp\nint x;\n```\n```\n5\n```"
    assert extract_for(problem(Stdin("1"), language="cpp"), text).code == main


# ── ends, and lengths ─────────────────────────────────────────────────────────────────────────────


def test_an_unclosed_fence_is_accepted_and_flagged():
    cut = extract("```python\nprint(1)\nprint(")
    assert cut.code == "print(1)\nprint("
    assert cut.unclosed
    assert not extract(f"```python\n{CODE}```").unclosed


def test_one_block_and_the_first_closed_block():
    for text in (ANSWER, f"<think>x</think>\n\n{ANSWER}\n", "```python\nprint('''\n```\n''')\n```"):
        assert is_one_block(text)
        assert first_block(f"{text}\n{WRONG}", language="python") == extract(text).code
    cut_off = "```python\nprint(1)"
    for text in (f"So:\n{ANSWER}", f"{ANSWER}\n{ANSWER}", cut_off, f"> {ANSWER}", CODE):
        assert not is_one_block(text)
    assert first_block(f"```bash\nnever closed\n{ANSWER}", language="bash") is None
    assert first_block(f"<think>{ANSWER}", language="python") is None


def test_a_long_answer_is_looked_at_up_to_a_cap_that_the_verdict_names():
    prose = "It adds. " * (MAX_CHARACTERS // 9)
    assert extract(f"{prose}\n{ANSWER}").label == "nothing+capped"
    found = extract(f"{ANSWER}\n{prose}{prose}")
    assert (found.code, found.label) == (CODE, "tagged_block+capped")
    assert extract(f"<think>{prose}{prose}</think>\n{ANSWER}").label == "tagged_block"


def _calls(text: str) -> int:
    """Calls of functions, Python's and C's, that looking at a completion in each way takes."""
    n = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal n
        n += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for way in WAYS:
            way(text)
    finally:
        sys.setprofile(None)
    return n


def _seconds(text: str) -> float:
    """CPU seconds that looking at a completion in each way takes.

    Without the collector, which walks through all that other tests have imported.
    """
    gc.disable()
    try:
        started = time.thread_time()
        for way in WAYS:
            way(text)
        return time.thread_time() - started
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_work_grows_no_faster_than_the_length(kind):
    """Work that grew with the square of the length took 2 s for 16,000 characters."""
    assert _seconds(KINDS[kind](20_000)) < 10 * _seconds(KINDS[kind](5_000)) + 0.5
    assert _calls(KINDS[kind](8_000)) < 20 * _calls(KINDS[kind](800)) + 1_000


LINES = st.text(alphabet=st.characters(exclude_characters="`~<>[]\r"), max_size=60)


@given(LINES.filter(str.strip), LINES, LINES)
def test_a_tagged_block_is_found_whatever_stands_around_it(code, before, after):
    found = extract(f"{before}\n```python\n{code}\n```\n{after}")
    assert found.code == code + "\n"
    assert found.rule is Rule.tagged_block


PARTS = (
    "```|```python\n|\n```\n|~~~|\n|[BEGIN]\n|\n[DONE]|\r|\\|<think>|</think>|'''|"
    '"""|x = 1\n|> |- |    |\'|`|#|('
)
PIECES = st.lists(
    st.sampled_from([*PARTS.split("|"), "def f(x):\n    return x\n"]), max_size=25
).map("".join)


@given(st.text() | PIECES, st.sampled_from(["python", "bash", "cpp", "javascript"]))
def test_any_text_has_an_answer_and_code_is_never_blank(text, language):
    for bare in (True, False):
        found = extract(text, language=language, bare=bare)
        assert found.code is None or found.code.strip()
        assert (found.code is None) == (found.rule in (Rule.nothing, Rule.unclosed_think))
    is_one_block(text, language=language)
    first_block(text, language=language)


@given(PIECES)
def test_what_is_thought_never_counts(thought):
    found = extract(f"<think>{thought.replace('think>', '')}\n</think>\nI cannot solve this.")
    assert found.code is None
