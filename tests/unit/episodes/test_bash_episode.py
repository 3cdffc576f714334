"""An episode in form `tools`: which call is run, what the model is told, and what ends it."""

from __future__ import annotations

from coding_model_project.episodes.bash import NOT_RUN, Calls, Ending, Episode, Limits, Reply
from coding_model_project.episodes.tool_calls import ToolCall, bash_call
from coding_model_project.harbor.environment.base import CommandResult


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
