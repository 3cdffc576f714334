"""The part of a text that Python's parser reads is bounded, and short texts are read as before."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.grading import literals
from coding_model_project.grading.extract import extract, first_block, is_one_block
from coding_model_project.grading.literals import (
    MAX_PARSED,
    MAX_PARSED_OF_A_TEXT,
    TooLong,
    syntax_tree,
)
from coding_model_project.grading.predictions import answer_text

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


PARTS = "```|```python\n|\n```\n|\n|[BEGIN]\n|\n[DONE]|<think>|</think>|'''|x = 1\n|(|f'{x}'\n|> "
PIECES = st.lists(
    st.sampled_from([*PARTS.split("|"), "print(1)```\n", "def f(x):\n    return x\n"]), max_size=25
).map("".join)


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
