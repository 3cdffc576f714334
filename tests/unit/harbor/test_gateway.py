"""The gateway over HTTP, as OpenAI's own client and worse ones use it."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace
from pathlib import Path

import httpx
import openai
import pytest

from coding_model_project.episodes.tool_calls import bash_call
from coding_model_project.errors import GenerationError
from coding_model_project.harbor.gateway.serving import Gateway
from coding_model_project.harbor.gateway.session import Limits, Session
from tests.tables import tables
from tests.unit.harbor.gateway_fakes import ROOMY, CharCodec, Scripted

USER = {"role": "user", "content": "Do it."}
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
MAX_BYTES = 100_000


class Served:
    """A gateway with one session."""

    def __init__(self, *replies, limits=ROOMY, **options):
        self.policy = replies[0] if isinstance(replies[0], Scripted) else Scripted(*replies)
        self.session = Session(self.policy, CharCodec(), limits, **options)

    async def __aenter__(self):
        self.gateway = await Gateway(max_bytes=MAX_BYTES).__aenter__()
        self._open = self.gateway.open(self.session)
        self.url = self._open.__enter__()
        key = self.session.key
        headers = {"Authorization": f"Bearer {key}"}
        self.http = httpx.AsyncClient(headers=headers, timeout=20, verify=False)  # it is all HTTP
        self.client = openai.AsyncOpenAI(
            base_url=self.url, api_key=key, max_retries=0, http_client=self.http
        )
        return self

    async def __aexit__(self, *_):
        await self.client.close()
        await self.session.close()
        self._open.__exit__(None, None, None)
        await self.gateway.__aexit__(None, None, None)

    async def chat(self, **body):
        return await self.client.chat.completions.create(model="any", **body)

    async def post(self, body, path="chat/completions", **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(f"{self.url}/{path}", content=content, headers=headers)


async def test_a_loop_with_native_tool_calls_is_one_conversation():
    call = bash_call("ls").text()
    async with Served(f"Look.\n{call}", call + call, "Done.") as served:
        messages = [USER]
        for _ in range(3):
            reply = (await served.chat(messages=messages, tools=[TOOL])).choices[0]
            messages.append(reply.message.model_dump())
            messages += [
                {"role": "tool", "tool_call_id": made.id, "content": "out"}
                for made in reply.message.tool_calls or ()
            ]
        assert [m["role"] for m in messages] == [
            *("user", "assistant", "tool", "assistant", "tool", "tool", "assistant")
        ]
        first = messages[1]
        assert first["content"] == "Look."
        made = first["tool_calls"][0]["function"]
        assert (made["name"], made["arguments"]) == ("bash", '{"command": "ls"}')
        assert reply.finish_reason == "stop" and messages[-1]["content"] == "Done."
        (only,) = served.session.recorder.trajectories(9)
        assert only.trained == sum(len(made.ids) for made in served.policy.generated)


async def test_silent_connections_of_a_room_neither_pile_up_nor_keep_its_agent_out():
    async with Served("Done.") as served, httpx.AsyncClient(timeout=20) as http:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            host, port = listening.getsockname()
            async with served.gateway.on(listening.dup(), served.session):
                before = len(list(Path("/proc/self/fd").iterdir()))
                silent = [await asyncio.open_connection(host, port) for _ in range(60)]
                headers = {"Authorization": f"Bearer {served.session.key}"}
                answer = await http.get(f"http://{host}:{port}/v1/models", headers=headers)
                assert answer.status_code == 200
                assert len(list(Path("/proc/self/fd").iterdir())) - before < 2 * 60
                for _, writer in silent:
                    writer.close()


async def test_a_stream_carries_the_same_reply_and_its_usage():
    async with Served("Look.\n" + bash_call("ls").text()) as served:
        stream = await served.chat(
            messages=[USER], tools=[TOOL], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        assert "".join(delta.content or "" for delta in deltas) == "Look."
        (call,) = [call for delta in deltas for call in delta.tool_calls or ()]
        assert (call.index, call.function.name) == (0, "bash")
        assert chunks[-2].choices[0].finish_reason == "tool_calls"
        (made,) = served.policy.generated
        assert chunks[-1].usage.completion_tokens == len(made.ids)
        assert chunks[-1].usage.prompt_tokens == len(served.policy.prompts[0])


async def test_limits_of_the_client_are_followed_and_said():
    async with Served("abcdef") as served:
        cut = await served.chat(messages=[USER], max_tokens=3)
        assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("abc", "length")
        assert cut.usage.completion_tokens == 3
        stopped = await served.chat(messages=[USER], stop=["de", "cd"])
        assert stopped.choices[0].message.content == "ab"
        assert served.policy.stops == [(), ("de", "cd")]
        plain = await served.chat(messages=[USER], tools=[TOOL], tool_choice="none")
        assert plain.choices[0].message.tool_calls is None
        assert [one.id async for one in await served.client.models.list()] == ["policy"]


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


BAD = [
    (b"", 400, "not JSON"),
    (b"\xff", 400, "not JSON"),
    (b"[" * 90_000, 400, "within each other"),
    (b"[]", 400, "not a JSON object"),
    (b"x" * (10 << 20), 413, "at most 100000 bytes"),
    (
        {"messages": [{"role": "user", "content": "x" * 60_000}]},
        400,
        "maximum context length is 1000",
    ),
    *tables("harbor")["bad requests"],
]


async def test_a_bad_request_is_one_line_in_openais_format_and_costs_no_reply():
    limits = Limits(prompt_tokens=1000, response_tokens=1000, context_tokens=2000)
    async with Served("ok", limits=limits) as served:
        for body, status, named in BAD:
            answer = await served.post(body)
            error = answer.json()["error"]
            assert answer.status_code == status, error
            assert named in error["message"] and "\n" not in error["message"]
            assert error["type"] == "invalid_request_error"
        assert not served.policy.prompts and served.session.is_open
        assert (await served.chat(messages=[USER])).choices[0].message.content == "ok"


async def test_a_body_without_a_length_is_read_no_further_than_allowed():
    async with Served("ok") as served:

        async def endless():
            for _ in range(10_000):
                yield b"x" * 10_000

        try:
            answer = await served.http.post(f"{served.url}/chat/completions", content=endless())
            assert answer.status_code == 413
        except httpx.HTTPError:
            pass  # the connection was closed on it
        assert (await served.chat(messages=[USER])).choices[0].message.content == "ok"


async def test_only_an_open_samples_key_is_let_in():
    async with Served("ok") as served:
        for key in ("", "Bearer", "Bearer x", f"Basic {served.session.key}", "Bearer \xe9"):
            headers = {"Authorization": key.encode("latin-1")}
            answer = await httpx.AsyncClient().post(
                f"{served.url}/chat/completions", json={"messages": [USER]}, headers=headers
            )
            assert answer.status_code == 401 and "traceback" not in answer.text.lower()
        await served.session.close()
        assert (await served.post({"messages": [USER]})).status_code == 401
        assert (await served.post({"command": "ls"}, "shell")).status_code == 401
        assert not served.policy.prompts


async def test_used_up_turns_and_context_are_said_in_the_clients_own_terms():
    limits = Limits(turns=2, prompt_tokens=99, response_tokens=12, context_tokens=200)
    async with Served("abcdef", limits=limits) as served:
        first = await served.chat(messages=[USER])
        messages = [USER, first.choices[0].message.model_dump(), USER]
        with pytest.raises(openai.BadRequestError) as full:
            await served.chat(messages=messages)
        assert full.value.code == "context_length_exceeded"
        assert served.session.refused == "context"
        await served.chat(messages=[USER])
        assert served.session.refused is None
        with pytest.raises(openai.PermissionDeniedError) as over:
            await served.chat(messages=[USER])
        assert over.value.code == "turns_used_up"
        assert served.session.refused == "turns"
        assert len(served.policy.prompts) == 2


async def test_a_flood_is_turned_away_before_it_is_read():
    async with Served("ok", limits=Limits(turns=1)) as served:
        answers = [await served.post(b"x") for _ in range(106)]
        assert {one.status_code for one in answers[:104]} == {400}
        assert {one.status_code for one in answers[104:]} == {429}


async def test_an_engine_that_is_gone_is_the_samples_failure_and_not_the_agents():
    async with Served(GenerationError("the engine at 10.0.0.1 is dead")) as served:
        answer = await served.post({"messages": [USER]})
        assert answer.status_code == 503 and "10.0.0.1" not in answer.text
        assert isinstance(served.session.failure, GenerationError)
        assert served.session.over.is_set() and not served.session.is_open


class Slow(Scripted):
    """A policy that needs some time."""

    async def generate(self, *args, **kwargs):
        await asyncio.sleep(0.5)
        return await super().generate(*args, **kwargs)


async def test_a_reply_that_nobody_waits_for_is_generated_counted_and_not_trained_on():
    async with Served(Slow("never read")) as served:
        with pytest.raises(httpx.ReadTimeout):
            await served.http.post(
                f"{served.url}/chat/completions", json={"messages": [USER]}, timeout=0.1
            )
        await served.session.close()
        (made,) = served.policy.generated
        assert served.session.n_undelivered == len(made.ids)
        assert not served.session.recorder.trajectories(9)


class Held(Scripted):
    """A policy that answers once it may."""

    def __init__(self, *replies):
        super().__init__(*replies)
        self.may = asyncio.Event()

    async def generate(self, *args, **kwargs):
        await self.may.wait()
        return await super().generate(*args, **kwargs)


@pytest.mark.parametrize("made", [False, True], ids=["being made", "made"])
@pytest.mark.parametrize("streams", [False, True])
async def test_an_equal_request_gets_the_reply_whose_client_is_gone(made, streams):
    async with Served(Held("once"), limits=replace(ROOMY, turns=1)) as served:
        body = {"messages": [USER]}
        url = f"{served.url}/chat/completions"
        with pytest.raises(httpx.ReadTimeout):
            await served.http.post(url, json=body | {"stream": streams}, timeout=0.1)
        await asyncio.sleep(0.1)  # the server notices
        if made:
            served.policy.may.set()
            while not served.policy.generated:
                await asyncio.sleep(0.01)
        again = asyncio.create_task(served.chat(messages=[USER]))
        await asyncio.sleep(0.1)
        served.policy.may.set()
        assert (await again).choices[0].message.content == "once"
        (only,) = served.session.recorder.trajectories(9)
        assert only.trained == len(served.policy.generated[0].ids)
        assert served.session.n_undelivered == 0


async def test_equal_requests_at_once_get_a_reply_each():
    async with Served(Slow("a", "b")) as served:
        both = await asyncio.gather(*(served.chat(messages=[USER]) for _ in range(2)))
        assert sorted(one.choices[0].message.content for one in both) == ["a", "b"]


async def test_a_stream_begins_before_the_reply_and_shows_signs_of_life(monkeypatch):
    monkeypatch.setattr("coding_model_project.harbor.gateway.serving._KEEP_ALIVE_S", 0.1)
    async with Served(Slow("Done.")) as served:
        body = {"messages": [USER], "stream": True}
        url = f"{served.url}/chat/completions"
        async with served.http.stream("POST", url, json=body, timeout=0.4) as answer:
            text = "".join([part async for part in answer.aiter_text()])
        assert text.index(": wait") < text.index("Done.") < text.index("[DONE]")


async def test_a_stream_whose_engine_is_gone_ends_with_an_error():
    class Gone(Slow):
        async def generate(self, *args, **kwargs):
            await asyncio.sleep(0.2)
            raise GenerationError("10.0.0.1 is dead")

    async with Served(Gone("")) as served:
        with pytest.raises(openai.APIError, match="the model or the environment is gone"):
            async for _ in await served.chat(messages=[USER], stream=True):
                pass


async def test_what_the_policy_cannot_be_held_to_is_noted():
    asked = {"tool_choice": "required", "response_format": {"type": "json_object"}, "seed": 1}
    image = [IMAGE, {"type": "text", "text": "?"}]
    async with Served("ok") as served:
        await served.chat(messages=[{"role": "user", "content": image}], tools=[TOOL], **asked)
        assert served.session.ignored >= {"image_url", *asked}
        assert "[image_url left out" in "".join(map(chr, served.policy.prompts[0]))


async def test_a_client_that_wants_one_call_gets_one():
    call = bash_call("ls").text()
    async with Served(call + call, "Done.") as served:
        more = {"tools": [TOOL], "parallel_tool_calls": False}
        said = (await served.chat(messages=[USER], **more)).choices[0].message
        (made,) = said.tool_calls
        result = {"role": "tool", "tool_call_id": made.id, "content": "out"}
        await served.chat(messages=[USER, said.model_dump(), result], **more)
        assert len(served.session.recorder.trajectories(9)) == 1


async def test_half_a_surrogate_pair_is_the_replacement_character():
    async with Served("ok") as served:
        body = b'{"messages": [{"role": "user", "content": "x \\ud83d y"}]}'
        assert (await served.post(body)).status_code == 200
        assert "x \ufffd y" in "".join(map(chr, served.policy.prompts[0]))


async def test_what_is_not_served_is_not_found():
    async with Served("ok") as served:
        assert (await served.post({}, "embeddings")).status_code == 404
        assert (await served.post({"command": "ls"}, "shell")).json()["error"]["code"] == "no_shell"
