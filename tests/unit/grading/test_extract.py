"""Extraction of programs from completions in all forms that models write."""

import ast
import gc
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.grading import literals
from coding_model_project.grading.extract import (
    MAX_CHARACTERS,
    Rule,
    extract,
    extract_for,
    first_block,
    is_one_block,
)
from coding_model_project.grading.fences import Fences, language_of
from coding_model_project.grading.literals import (
    MAX_PARSED,
    MAX_PARSED_OF_A_TEXT,
    TooLong,
    syntax_tree,
)
from coding_model_project.grading.predictions import answer_text
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
    st.sampled_from([*PARTS.split("|"), "def f(x):\n    return x\n", "f'{x}'\n", "print(1)```\n"]),
    max_size=25,
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


FENCES = tables("fences")


def found(text, language="python"):
    return [(one.language, one.code, one.closed) for one in Fences(text, language).blocks()]


@pytest.mark.parametrize(("text", "code"), FENCES["closed"])
def test_blocks_close_as_in_commonmark(text, code):
    assert [(one, closed) for _, one, closed in found(text)] == [(code, True)]


@pytest.mark.parametrize(
    "text", ["``\nx\n``", "``` ```\nx", "``` a`b\nx", "a ```python\nx", "`~~\nx", "```python x```"]
)
def test_what_is_no_fence(text):
    assert found(text) == []


@pytest.mark.parametrize(("text", "code"), FENCES["nested"])
def test_blocks_in_lists_and_quotes(text, code):
    assert found(text)[0] == ("python", code, True)


@pytest.mark.parametrize(("language", "code"), FENCES["literals"])
def test_a_fence_in_a_literal_is_text(language, code):
    if language == "python":
        compile(code, "here", "exec")
    assert found(f"So:\n```{language}\n{code}```\nDone.", language) == [(language, code, True)]


def test_a_literal_that_never_ends_moves_no_fence():
    text = "```python\nx = '''\n```\nIt's done.\n```text\n2\n```"
    assert found(text) == [("python", "x = '''\n", True), ("text", "2\n", True)]


@pytest.mark.parametrize("language", ["python", "cpp"])
def test_what_was_never_closed_ends_at_the_next_block_in_its_language(language):
    tag = f"```{language}\n"
    blocks = found(f"{tag}a\nBetter:\n{tag}b\n```", language)
    assert blocks == [(language, "a\nBetter:\n", False), (language, "b\n", True)]
    assert found(f"```\nstray\n{tag}b\n```", language)[-1] == (language, "b\n", True)
    assert found(f"{tag}a;```\nBetter:\n{tag}b\n```", language) == [
        (language, "a;", True),
        (language, "b\n", True),
    ]


def test_a_fence_after_code_ends_what_nothing_else_does():
    assert found("```python\nprint(1)```\nSo.") == [("python", "print(1)", True)]
    assert found("```cpp\nint x;```\nSo.", "cpp") == [("cpp", "int x;", True)]
    assert found("```python\ns = 'x' # ```\ny = (\n```") == [
        ("python", "s = 'x' # ```\ny = (\n", True)
    ]
    cut_off = "```python\ns = 1 # ```\ny = "
    assert found(cut_off) == [("python", "s = 1 # ```\ny = ", False)]


FENCE_LINES = st.lists(
    st.sampled_from([
        "```", "~~~", "````", "```python", "   ```", "    ```", "> ```", "- ```", "> x", "x = 1",
        "'''", '"""', "x```", "[DONE]", "", "```text", "\t~~~", "# '''", "<<E", "E", 'R"(', ')"',
    ]),
    max_size=25,
)  # fmt: skip


@given(FENCE_LINES, st.sampled_from(["python", "bash", "cpp"]))
def test_blocks_are_parts_of_the_text_in_order(lines, language):
    text = "\n".join(lines)
    fences = Fences(text, language)
    for blocks in (list(fences.blocks()), list(fences.blocks(outlines=True))):
        ends = [0, *(one.end for one in blocks)]
        assert all(one.first >= end for one, end in zip(blocks, ends, strict=False))
        assert all(one.first < one.end <= len(fences.lines) for one in blocks)
        for one in blocks:
            own = {line.lstrip("> \t-").rstrip("`") for line in fences.lines[one.first : one.end]}
            assert {line.lstrip("> \t-").rstrip("`") for line in one.code.split("\n")} <= {*own, ""}


@given(FENCE_LINES.map("\n".join), st.integers(0, 3), st.sampled_from(["```", "~~~~"]))
def test_a_longer_fence_holds_any_text(text, indent, fence):
    """The fence longer than all in it, which is how CommonMark quotes a fence."""
    longer = fence[0] * 12
    (outline,) = Fences(f"{' ' * indent}{longer}md\n{text}\n{longer}", "python").blocks(
        outlines=True
    )
    assert (outline.end, outline.closed) == (text.count("\n") + 3, True)


@pytest.mark.parametrize(("language", "infos"), tables("info_strings")["infos"])
def test_an_info_string_names_its_language(language, infos):
    for info in infos.split("|"):
        assert language_of(info) == language, info


def test_a_long_info_string_takes_no_time():
    assert language_of("x " * 1_000_000) == "x"
    assert language_of("{" * 1_000_000) == ""


FIELDS = "x=f'" + "{a}" * 60_000 + "'\n x = = \n"
HOSTILE = {
    "fields of one f-string": f"```python\n{FIELDS}" + "print(1)```\n" * 8,
    "fields of short f-strings": ("```\nx=f'" + "{a}" * 3_000 + "'\n=\n```\n") * 100,
    "thoughts in long programs": ("```\nx=(" + "a," * 40_000 + ")#</think>\n```\n") * 9,
    "ends of long programs": "[BEGIN]\n" + ("x=(" + "a," * 20_000 + ")\n[DONE]\n") * 20,
    "untagged blocks": ("```\n(a,b," + "a," * 10_000 + "\n```\n") * 40,
    "predictions": ("[ANSWER]" + "a," * 9_999 + "[/ANSWER]") * 17,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "way", [extract, is_one_block, lambda text: extract(text, bare=True), answer_text]
)
def test_pythons_parser_reads_a_bounded_part_of_a_text(text, way):
    read = []

    def parse(code):
        read.append(code)
        return ast.Module(body=[], type_ignores=[])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "parse", parse)
        way(text)
    fields = sum(code.count("{") * len(code) for code in read)
    assert sum(map(len, read)) <= MAX_PARSED_OF_A_TEXT
    assert fields * literals._SHARE_OF_FIELDS <= MAX_PARSED_OF_A_TEXT


@pytest.mark.slow
def test_a_program_that_takes_too_long_to_parse_is_refused():
    syntax_tree("x\n" * (MAX_PARSED // 2))
    for code in ("x\n" * MAX_PARSED, FIELDS):
        with pytest.raises(TooLong):
            syntax_tree(code)


@given(PIECES, st.booleans())
def test_a_short_text_is_read_as_without_a_bound(text, bare):
    ways = (
        lambda: extract(text, bare=bare),
        lambda: is_one_block(text),
        lambda: first_block(text, language="python"),
    )
    bounded = [way() for way in ways]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(literals, "MAX_PARSED", float("inf"))
        patch.setattr(literals, "MAX_PARSED_OF_A_TEXT", float("inf"))
        assert bounded == [way() for way in ways]
