"""OpenAI's Responses and Anthropic's Messages, by the clients of the two."""

from __future__ import annotations

import openai
import pytest

from coding_model_project.episodes.tool_calls import ToolCall, bash_call
from coding_model_project.harbor.gateway.session import Limits, TemplateRefused
from tests.unit.harbor.gateway_fakes import CharCodec
from tests.unit.harbor.test_gateway import Served

TOO_LONG = "x" * 2000
SMALL = Limits(turns=1, prompt_tokens=1000, response_tokens=1000, context_tokens=2000)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
THINKS = "<think>\nI need it.\n</think>\n\nI look.\n" + bash_call("ls").text()


async def sent(served, streams, **body):
    """Return a response of either kind."""
    body = {"model": "any", **body}
    if not streams:
        return await served.client.responses.create(**body)
    async with served.client.responses.stream(**body) as stream:
        events = [event async for event in stream]
        kinds = [event.type for event in events]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        return await stream.get_final_response()


@pytest.mark.parametrize("streams", [False, True])
async def test_responses_of_a_model_that_thinks_are_one_conversation(streams):
    tools = [
        {"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False},
        {"type": "web_search"},
    ]
    async with Served(THINKS, "Done.") as served:
        items = [{"role": "developer", "content": "Work."}, {"role": "user", "content": "Do it."}]
        for _ in range(2):
            made = await sent(served, streams, input=items, instructions="Be brief.", tools=tools)
            assert made.status == "completed" and made.usage.total_tokens > 0
            items += [one.model_dump(exclude_none=True) for one in made.output]
            items += [
                {"type": "function_call_output", "call_id": one.call_id, "output": "out"}
                for one in made.output
                if one.type == "function_call"
            ]
        assert [one.get("type", "message") for one in items[2:]] == [
            *("reasoning", "message", "function_call", "function_call_output", "message")
        ]
        assert made.output_text == "Done."
        (only,) = served.session.recorder.trajectories(9)
        assert only.trained == sum(len(made.ids) for made in served.policy.generated)
        prompt = "".join(map(chr, only.prompt))
        assert "<system>Be brief.\nWork.\n<user>Do it." in prompt
        assert "tools.web_search" in served.session.ignored and "web_search" not in prompt


@pytest.mark.parametrize("streams", [False, True])
async def test_tools_of_namespaces_and_of_free_text_come_back_as_the_client_names_them(streams):
    tools = [
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "definition": "g: x"}},
        {
            "type": "namespace",
            "name": "files",
            "description": "Files.",
            "tools": [{"type": "function", "name": "read", "parameters": SCHEMA}],
        },
    ]
    calls = [
        ToolCall(name="patch", arguments='{"input": "*** x"}'),
        ToolCall(name="files__read", arguments='{"path": "a"}'),
    ]
    async with Served("".join(call.text() for call in calls), "Done.") as served:
        items = [{"role": "user", "content": "Do it."}]
        made = await sent(served, streams, input=items, tools=tools)
        patch, read = made.output
        assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "patch", "*** x")
        assert (read.namespace, read.name, read.arguments) == ("files", "read", '{"path": "a"}')
        items += [one.model_dump(exclude_none=True) for one in made.output]
        for one, kind in ((patch, "custom_tool_call_output"), (read, "function_call_output")):
            parts = [{"type": "input_text", "text": "ok"}]
            items.append({"type": kind, "call_id": one.call_id, "output": parts})
        await sent(served, streams, input=items, tools=tools)
        assert len(served.session.recorder.trajectories(9)) == 1


async def test_a_response_that_is_cut_is_incomplete_and_refusals_are_openais():
    async with Served("abcdef", limits=SMALL) as served:
        made = await sent(served, streams=False, input="Do it.", max_output_tokens=2)
        assert (made.status, made.output_text) == ("incomplete", "ab")
        assert made.incomplete_details.reason == "max_output_tokens"
        for name, value in {
            "previous_response_id": "resp_1",
            "input": [{"type": "item_reference", "id": "msg_1"}],
        }.items():
            with pytest.raises(openai.BadRequestError, match="nothing is stored"):
                await sent(served, streams=False, **{"input": "Do it.", name: value})
        with pytest.raises(openai.PermissionDeniedError, match="used up"):
            await sent(served, streams=True, input="Do it.")


class Claude:
    """Anthropic's client of a served session."""

    def __init__(self, served):
        import anthropic  # here: it takes seconds, in every process that collects tests

        url = served.url.removesuffix("/v1")
        key = served.session.key
        self.client = anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.client.close()

    async def sent(self, streams, **body):
        body = {"model": "any", "max_tokens": 1000, **body}
        if not streams:
            return await self.client.messages.create(**body)
        async with self.client.messages.stream(**body) as stream:
            return await stream.get_final_message()


@pytest.mark.parametrize("streams", [False, True])
async def test_messages_of_a_model_that_thinks_are_one_conversation(streams):
    tools = [
        {"name": "bash", "input_schema": SCHEMA},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cch=1"},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
    ]
    more = {"system": system, "tools": tools, "thinking": {"type": "adaptive"}}
    async with Served(THINKS, "Done.") as served, Claude(served) as claude:
        messages = [{"role": "user", "content": "Do it."}]
        made = await claude.sent(streams, messages=messages, **more)
        assert made.stop_reason == "tool_use"
        assert [one.type for one in made.content] == ["thinking", "text", "tool_use"]
        thought, text, use = made.content
        assert (thought.thinking, text.text) == ("I need it.", "I look.")
        assert use.input == {"command": "ls"}
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "out"}
        note = {"type": "text", "text": "Go on."}
        messages += [made.to_param(), {"role": "user", "content": [result, note]}]
        made = await claude.sent(streams, messages=messages, **more)
        assert (made.stop_reason, made.content[0].text) == ("end_turn", "Done.")
        (only,) = served.session.recorder.trajectories(9)
        assert only.trained == sum(len(made.ids) for made in served.policy.generated)
        assert "<tool>out\n<user>Go on.\n" in "".join(map(chr, only.response))
        assert "billing" not in "".join(map(chr, only.prompt))
        assert made.usage.input_tokens == len(served.policy.prompts[1])


async def test_messages_are_counted_and_refused_in_anthropics_form():
    import anthropic

    limits = Limits(turns=2, prompt_tokens=1000, response_tokens=1000, context_tokens=2000)
    async with Served("abcdef", limits=limits) as served, Claude(served) as claude:
        user = [{"role": "user", "content": "Do it."}]
        counted = await claude.client.messages.count_tokens(model="any", messages=user)
        made = await claude.sent(streams=False, messages=user, stop_sequences=["cd"])
        assert counted.input_tokens == made.usage.input_tokens
        assert (made.stop_reason, made.stop_sequence) == ("stop_sequence", "cd")
        made = await claude.sent(streams=True, messages=user, max_tokens=2)
        assert (made.stop_reason, made.content[0].text) == ("max_tokens", "ab")
        with pytest.raises(anthropic.PermissionDeniedError) as over:
            await claude.sent(streams=True, messages=user)
        assert over.value.body["error"]["type"] == "permission_error"
        assert (await served.http.head(served.url.removesuffix("v1"))).status_code == 200
    async with Served("abcdef", limits=SMALL) as served, Claude(served) as claude:
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            await claude.sent(streams=False, messages=[{"role": "user", "content": TOO_LONG}])
        claude.client.api_key = "another"
        with pytest.raises(anthropic.AuthenticationError):
            await claude.sent(streams=False, messages=user)


async def test_a_template_that_has_the_system_at_its_beginning_only_gets_later_ones_as_a_users():
    class Strict(CharCodec):
        def opening(self, messages, tools):
            if any(message["role"] == "system" for message in messages[1:]):
                raise TemplateRefused("the system's message must be the first")
            return super().opening(messages, tools)

    async with Served("ok") as served, Claude(served) as claude:
        served.session._codec = Strict()
        messages = [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]
        await claude.sent(streams=False, messages=messages)
        assert "<user>a\n<user>b\n" in "".join(map(chr, served.policy.prompts[0]))
