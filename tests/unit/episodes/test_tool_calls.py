"""Tool calls in replies: what is one, what stays content, and that nothing makes the parser fail."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.episodes.tool_calls import (
    CLOSE,
    MARKS,
    OPEN,
    ArgumentsError,
    ParsedReply,
    ToolCall,
    bash_call,
    bash_command,
    for_template,
    parse,
)

LS = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
A_LS = ToolCall(name="bash", arguments='{"command": "ls"}')


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (LS, None, [A_LS]),
        ("Done.", "Done.", []),
        ("", None, []),
        (f"First look.\n{LS}\n", "First look.", [A_LS]),
        (f"a {LS} b {LS} c", "a\nb\nc", [A_LS, A_LS]),
        (f'{OPEN}{{"arguments":{{}} , "name":"x"}}{CLOSE}', None,
         [ToolCall(name="x", arguments="{}")]),
        (f'{OPEN}{{"name": "bash"}}{CLOSE}', None, [ToolCall(name="bash", arguments="{}")]),
        (f'{OPEN}{{"name": "bash", "arguments": "{{\\"command\\": \\"ls\\"}}"}}{CLOSE}', None,
         [A_LS]),
        (f'{OPEN}{{"name": "bash", "arguments": [1,  2]}}{CLOSE}', None,
         [ToolCall(name="bash", arguments="[1, 2]")]),
        (f"<think>{LS}</think>\nDone.", f"<think>{LS}</think>\nDone.", []),
        (f"{LS} or so</think>{LS}", f"{LS} or so</think>", [A_LS]),
        (f"<think>{LS}", f"<think>{LS}", []),
    ],
)  # fmt: skip
def test_calls_are_found_and_the_rest_is_content(text, content, calls):
    assert parse(text) == ParsedReply(content=content, calls=tuple(calls))


@pytest.mark.parametrize(
    "text",
    [
        LS.removesuffix(CLOSE),
        f"{OPEN}{CLOSE}",
        f"{OPEN}bash{CLOSE}",
        f'{OPEN}["bash"]{CLOSE}',
        f'{OPEN}{{"name": 3, "arguments": {{}}}}{CLOSE}',
        f'{OPEN}{{"name": " ", "arguments": {{}}}}{CLOSE}',
        f'{OPEN}{{"arguments": {{}}}}{CLOSE}',
        f'{OPEN}{{"name": "bash", "arguments": {{}},}}{CLOSE}',
        f'{OPEN}{{"name": "bash", "arguments": NaN}}{CLOSE}',
        f'{OPEN}{{"name": "bash", "arguments": {{"command": "ls"}} {CLOSE}',
        f'{OPEN}{{"name": "bash"}} and more {CLOSE}',
        f'{OPEN}{{"name": "bash", "arguments": {"[" * 100_000}',
        f'{OPEN}{{"name": "bash", "arguments": {"9" * 5000}}}{CLOSE}',
    ],
)
def test_what_is_no_whole_call_stays_content_and_hides_no_other(text):
    assert parse(text) == ParsedReply(content=text.strip(), calls=())
    assert parse(f"{text}\n{LS}").calls == (A_LS,)


def test_a_command_may_hold_the_marks_themselves():
    command = f"grep -n '{OPEN}' log && echo '{CLOSE} </think> {OPEN}'"
    first = bash_call("ls")
    for calls in ((bash_call(command),), (first, bash_call(command), first)):
        assert parse("\n".join(call.text() for call in calls)).calls == calls


TEXT = st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
ARGUMENTS = st.dictionaries(TEXT, JSON, max_size=3)
CALLS = st.builds(
    lambda name, arguments: ToolCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False)),
    TEXT.filter(str.strip), ARGUMENTS,
)  # fmt: skip
WORDS = TEXT.filter(lambda text: "<" not in text)


@given(st.lists(st.tuples(WORDS, CALLS), max_size=4), WORDS)
def test_what_is_written_is_read_in_order(parts, last):
    text = "".join(before + call.text() for before, call in parts) + last
    said = [part.strip() for part in (*(before for before, _ in parts), last)]
    found = parse(text)
    assert found.calls == tuple(call for _, call in parts)
    assert found.content == ("\n".join(part for part in said if part) or None)


@given(st.lists(st.sampled_from([*MARKS, "<think>", "</think>", LS, "{", "}", '"', "\\", '"name"',
                                 ":", ",", "[", "1", " "]) | st.text(max_size=3)))  # fmt: skip
def test_any_text_is_read(parts):
    found = parse("".join(parts))
    assert found.content is None or found.content == found.content.strip() != ""
    for call in found.calls:
        assert parse(ToolCall(name=call.name, arguments="{}").text()).calls


@pytest.mark.parametrize(
    "unit", [OPEN, f"{OPEN}{{", f'{OPEN}{{"name": "', f'{OPEN}{{"a":1,\n', "<think>", LS, " \n"]
)
def test_a_long_reply_takes_no_longer_than_its_length_allows(unit):
    text = unit * (1_000_000 // len(unit))
    began = time.process_time()
    parse(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("python", "{}", "no tool 'python'; the only one is bash"),
        ("bash", '{"command": ', "arguments are not JSON"),
        ("bash", "[" * 100_000, "arguments are not JSON"),
        ("bash", "[]", 'arguments must be {"command"'),
        ("bash", '{"command": 3}', 'arguments must be {"command"'),
        ("bash", '{"command": " "}', 'arguments must be {"command"'),
    ],
)
def test_a_call_without_a_command_says_why_in_one_line(name, arguments, says):
    with pytest.raises(ArgumentsError) as error:
        bash_command(ToolCall(name=name, arguments=arguments))
    assert says in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 150


def test_templates_get_arguments_as_objects_and_content_as_text():
    broken = ToolCall(name="bash", arguments="{")
    calls = [A_LS.openai("1"), broken.openai("2")]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    (shown,) = for_template([message])
    first, second = (call["function"]["arguments"] for call in shown["tool_calls"])
    assert (shown["content"], first, second) == ("", {"command": "ls"}, "{")
    assert message["content"] is None  # what was given is as it was
