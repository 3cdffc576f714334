"""Blocks by CommonMark (0.31, section 4.5), in the forms of models, and with literals in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.grading.fences import Fences, language_of
from tests.tables import tables

CASES = tables("fences")


def found(text, language="python"):
    return [(one.language, one.code, one.closed) for one in Fences(text, language).blocks()]


@pytest.mark.parametrize(("text", "code"), CASES["closed"])
def test_blocks_close_as_in_commonmark(text, code):
    assert [(one, closed) for _, one, closed in found(text)] == [(code, True)]


@pytest.mark.parametrize(
    "text", ["``\nx\n``", "``` ```\nx", "``` a`b\nx", "a ```python\nx", "`~~\nx", "```python x```"]
)
def test_what_is_no_fence(text):
    assert found(text) == []


@pytest.mark.parametrize(("text", "code"), CASES["nested"])
def test_blocks_in_lists_and_quotes(text, code):
    assert found(text)[0] == ("python", code, True)


@pytest.mark.parametrize(("language", "code"), CASES["literals"])
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


LINES = st.lists(
    st.sampled_from([
        "```", "~~~", "````", "```python", "   ```", "    ```", "> ```", "- ```", "> x", "x = 1",
        "'''", '"""', "x```", "[DONE]", "", "```text", "\t~~~", "# '''", "<<E", "E", 'R"(', ')"',
    ]),
    max_size=25,
)  # fmt: skip


@given(LINES, st.sampled_from(["python", "bash", "cpp"]))
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


@given(LINES.map("\n".join), st.integers(0, 3), st.sampled_from(["```", "~~~~"]))
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
