"""One rule for every completion, however it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.grading.extract import Rule, extract

CODE = "print(1)\n"


@pytest.mark.parametrize(
    ("completion", "code", "rule"),
    [
        (f"Sure:\n```python\n{CODE}```\nDone.", CODE, Rule.tagged_block),
        (f"```py\nold\n```\n```Python3\n{CODE}```", CODE, Rule.tagged_block),
        (f"```python\n{CODE}```\n```bash\npip install x\n```", CODE, Rule.tagged_block),
        (f"```python\n{CODE}```\n```\n1\n```", CODE, Rule.tagged_block),
        (f"```\n{CODE}```\n```\nThe answer is one.\n```", CODE, Rule.untagged_block),
        ("```bash\nls\n```", None, Rule.nothing),
        ("```cpp\nint main(){}\n```", None, Rule.nothing),
        ("no code at all", None, Rule.nothing),
        (
            f"<think>\n```python\nwrong\n```\n</think>\n```python\n{CODE}```",
            CODE,
            Rule.tagged_block,
        ),
        (f"<think>```python\n{CODE}```", None, Rule.unclosed_think),
        (f"a</think><think>b</think>\n```python\n{CODE}```", CODE, Rule.tagged_block),
        (f"```python\n{CODE}```\n[DONE]\n```python\nafter\n```", CODE, Rule.tagged_block),
        ("```python\nprint('[DONE]')\n```", "print('[DONE]')\n", Rule.tagged_block),
        ("```python\r\nprint(1)\r\n```\r\nbye", "print(1)\r\n", Rule.tagged_block),
        (
            "1. So:\n   ```python\n   if 1:\n       print(1)\n   ```",
            "if 1:\n    print(1)\n",
            "tagged_block",
        ),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n", Rule.tagged_block),
        ("```python\nprint(1)```\nSo.", "print(1)", Rule.tagged_block),
        ("```python\n \n```", None, Rule.nothing),
        ("", None, Rule.nothing),
    ],
)
def test_fenced(completion, code, rule):
    found = extract(completion)
    assert (found.code, found.rule) == (code, rule)


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        (CODE, CODE),
        (f"{CODE}[DONE] and more", CODE),
        (f"[BEGIN]\n{CODE}[DONE]", "\n" + CODE),
        (f"<think>x</think>{CODE}", CODE),
        (" \n\t", None),
        (f"```python\n{CODE}```", CODE),
    ],
)
def test_bare(completion, code):
    assert extract(completion, bare=True).code == code


def test_bare_text_counts_only_where_it_was_asked_for():
    assert extract(CODE).code is None


def test_an_unclosed_fence_is_accepted_and_flagged():
    cut = extract("```python\nprint(1)\nprint(")
    assert cut.code == "print(1)\nprint("
    assert cut.unclosed
    assert not extract(f"```python\n{CODE}```").unclosed


def test_other_languages_by_their_tags():
    text = f"```c++\nint x;\n```\n```python\n{CODE}```"
    assert extract(text, language="cpp").code == "int x;\n"
    for language, tag in (("cpp", "cc"), ("c++", "cpp"), ("javascript", "js"), ("bash", "sh")):
        found = extract(f"```{tag}\nx\n```\n```python\n{CODE}```", language=language)
        assert (found.code, found.rule) == ("x\n", Rule.tagged_block)


LINES = st.text(alphabet=st.characters(exclude_characters="`~<>[]\r"), max_size=60)


@given(LINES.filter(str.strip), LINES, LINES)
def test_a_tagged_block_is_found_whatever_stands_around_it(code, before, after):
    found = extract(f"{before}\n```python\n{code}\n```\n{after}")
    assert found.code == code + "\n"
    assert found.rule is Rule.tagged_block


@given(st.text())
def test_any_text_has_an_answer_and_code_is_never_blank(text):
    for bare in (True, False):
        found = extract(text, bare=bare)
        assert found.code is None or found.code.strip()
        assert (found.code is None) == (found.rule in (Rule.nothing, Rule.unclosed_think))


def test_hostile_lengths_take_no_time():
    for text in (
        "```" * 20_000,
        "```\n" * 20_000,
        "<think>" * 20_000,
        "`" * 100_000,
        " " * 100_000,
    ):
        extract(text + "\n" + text, bare=True)
