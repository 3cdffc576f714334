"""An episode in form `tools`: which call is run, what the model is told, and what ends it."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.episodes.bash import NOT_RUN, Calls, Ending, Episode, Limits, Reply
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
from coding_model_project.harbor.environment.base import CommandResult
from tests.tables import tables

CASES = tables("unit")


class Echo:
    """A shell that prints the command."""

    def __init__(self):
        self.ran = []

    async def run_command(self, command, *, timeout_s, user, max_output):
        self.ran.append(command.removeprefix("exec 2>&1\n"))
        return CommandResult(stdout=self.ran[-1] + "\n")


def calling(*calls: str | ToolCall, text: str = "", cut: bool = False) -> Reply:
    made = tuple(bash_call(call) if isinstance(call, str) else call for call in calls)
    return Reply(text=text, tokens=10, calls=made, cut=cut)


async def episode(*replies: Reply, limits: Limits | None = None) -> tuple[Episode, list[str]]:
    shell = Echo()
    made = Episode("Do it.", shell, limits or Limits(), calls=Calls.tools)
    for reply in replies:
        assert made.ending is None
        await made.take(reply)
    return made, shell.ran


async def test_a_call_is_run_and_answered_in_role_tool_until_a_reply_has_none():
    made, ran = await episode(calling("ls", text="I look."), Reply(text="Done.", tokens=2))
    assert (ran, made.ending) == (["ls"], Ending.done)
    system, user, assistant, tool, last = made.messages
    assert "Call bash" in system["content"] and user == {"role": "user", "content": "Do it."}
    (call,) = assistant["tool_calls"]
    assert call["function"] == {"name": "bash", "arguments": '{"command": "ls"}'}
    assert assistant["content"] == "I look." and len(call["id"]) == 9 and call["id"].isalnum()
    assert tool == {"role": "tool", "tool_call_id": call["id"], "name": "bash",
                    "content": "exit code 0\nls"}  # fmt: skip
    assert last == {"role": "assistant", "content": "Done."}


async def test_a_block_is_no_command_in_form_tools_nor_a_call_one_in_form_block():
    made, ran = await episode(Reply(text="```bash\nls\n```", tokens=9))
    assert (made.ending, ran) == (Ending.done, [])
    shell = Echo()
    blocks = Episode("Do it.", shell, Limits())
    await blocks.take(Reply(text=bash_call("ls").text(), tokens=9))
    assert (blocks.ending, shell.ran) == (Ending.done, [])


async def test_of_several_calls_the_first_is_run_and_each_is_answered():
    made, ran = await episode(calling("ls", "rm -r .", ToolCall(name="python", arguments="{}")))
    assert ran == ["ls"]
    *_, assistant, first, second, third = made.messages
    assert [one["content"] for one in (first, second, third)] == [
        "exit code 0\nls",
        NOT_RUN,
        NOT_RUN,
    ]
    answered = [one["tool_call_id"] for one in (first, second, third)]
    assert answered == [call["id"] for call in assistant["tool_calls"]] and len(set(answered)) == 3


async def test_a_wrong_call_is_told_and_costs_a_turn():
    wrong = [
        ToolCall(name="python", arguments="{}"),
        ToolCall(name="bash", arguments='{"command": '),
        ToolCall(name="bash", arguments='{"cmd": "ls"}'),
    ]
    made, ran = await episode(*map(calling, wrong), calling("ls"), limits=Limits(turns=4))
    assert (ran, made.ending) == (["ls"], Ending.turns)
    told = [turn.observation for turn in made.turns]
    assert told[0] == "error: no tool 'python'; the only one is bash"
    assert "not JSON" in told[1] and '{"command": "…"}' in told[2]
    sent = [m["tool_calls"][0]["function"]["arguments"] for m in made.messages if "tool_calls" in m]
    assert sent[:3] == ["{}", '{"invalid": "{\\"command\\": "}', '{"cmd": "ls"}']
    assert [turn.command for turn in made.turns] == [None, None, None, "ls"]
    assert [m["content"] for m in made.messages if m["role"] == "tool"] == told[:3]


async def test_a_reply_that_was_cut_off_runs_nothing():
    made, ran = await episode(calling("ls", cut=True))
    assert (ran, made.ending) == ([], Ending.tokens)


# ── tool calls in replies: what is one, what stays content, and that nothing makes the parser fail


LS = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
A_LS = ToolCall(name="bash", arguments='{"command": "ls"}')


@pytest.mark.parametrize(("text", "content", "calls"), CASES["tool calls"])
def test_calls_are_found_and_the_rest_is_content(text, content, calls):
    made = tuple(ToolCall(name=name, arguments=arguments) for name, arguments in calls)
    assert parse(text) == ParsedReply(content=content, calls=made)


LONG = f'{OPEN}{{"name": "bash", "arguments": '


@pytest.mark.parametrize(
    "text", [*CASES["no whole call"], LONG + "[" * 100_000, f"{LONG}{'9' * 5000}}}{CLOSE}"]
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
    [*CASES["no command"], ("bash", "[" * 100_000, "arguments are not JSON")],
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
