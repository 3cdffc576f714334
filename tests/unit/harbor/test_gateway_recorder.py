"""The gateway's records: the policy's own tokens, each trained on once, in any conversation."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project.episodes.tool_calls import bash_call
from coding_model_project.harbor.gateway.chat import Chat
from coding_model_project.harbor.gateway.recorder import best
from coding_model_project.harbor.gateway.requests import Ask
from coding_model_project.harbor.gateway.session import Session
from tests.tables import tables
from tests.unit.harbor.gateway_fakes import ROOMY, CharCodec, Scripted, reply

CASES = tables("harbor")

TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
THOUGHT = "<think>\nA thought.\n</think>\n\n"
REPLIES = st.one_of(
    TEXTS,
    st.builds(lambda text: THOUGHT + text, TEXTS),
    st.builds(
        lambda text, command: f"{THOUGHT}{text}{bash_call(command).text()}",
        st.sampled_from(["", "I look.\n"]),
        TEXTS,
    ),
    st.builds(lambda text, command: text + bash_call(command).text(), TEXTS, TEXTS),
    st.just("<tool_call>{broken"),
)
MESSAGES = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "tool", "system"]),
    TEXTS,
)
ACTIONS = st.one_of(
    st.tuples(st.just("go on"), st.lists(MESSAGES, min_size=1, max_size=3)),
    st.tuples(st.just("go back"), st.integers(0, 5)),
    st.tuples(st.just("rewrite"), TEXTS),
    st.tuples(st.just("again"), st.none()),
    st.tuples(st.just("forget"), MESSAGES),
)


def echoed(message: dict) -> dict:
    """A reply as clients send it back: None for no text, keys of arguments in another order."""
    back = {**message, "content": message["content"] or None, "refusal": None}
    for call in back.get("tool_calls", ()):
        call["function"]["arguments"] = json.dumps(
            dict(reversed(json.loads(call["function"]["arguments"]).items())), indent=1
        )
    return back


def without_thought(message: dict) -> dict:
    return {name: value for name, value in message.items() if name != "reasoning_content"}


def thought_in_text(message: dict) -> dict:
    thought = message.get("reasoning_content", "")
    text = (
        f"<think>{thought}</think>\n{message['content'] or ''}" if thought else message["content"]
    )
    return {**without_thought(message), "content": text}


def calls_only(message: dict) -> dict:
    return {**message, "content": None} if message.get("tool_calls") else message


def own_ids(message: dict) -> dict:
    calls = [{**call, "id": f"own{at}"} for at, call in enumerate(message.get("tool_calls", ()))]
    return {**message, **({"tool_calls": calls} if calls else {})}


WAYS = [echoed, without_thought, thought_in_text, calls_only, own_ids]


async def converse(session: Session, actions, first, writes=echoed) -> int:
    """A client that does all that clients do; returns how often it asked."""
    messages, asked, n = [first], None, 0
    for kind, what in [("go on", []), *actions]:
        match kind:
            case "go on":
                messages = [*messages, *what]
            case "go back":
                messages = messages[: max(1, len(messages) - what)]
            case "rewrite":
                messages = [{**messages[0], "content": what}, *messages[1:]]
            case "forget":
                messages = [messages[0], what]
            case "again":
                messages = asked or messages
        if messages[-1]["role"] == "assistant":
            messages = [*messages, {"role": "user", "content": "on"}]
        asked = messages
        body = {"messages": messages, "tools": [TOOL]}
        answer = await reply(session, Chat.read(json.dumps(body).encode()).ask)
        messages = [*messages, writes(answer.message)]
        n += 1
    return n


@settings(max_examples=100, deadline=None)
@given(
    st.lists(ACTIONS, max_size=8),
    st.lists(REPLIES, min_size=1, max_size=9),
    MESSAGES,
    st.sampled_from(WAYS),
)
def test_every_generated_token_is_trained_on_once_and_where_the_policy_was_asked(
    actions, replies, first, writes
):
    policy = Scripted(*replies)

    async def run():
        session = Session(policy, CharCodec(), ROOMY)
        n = await converse(session, actions, first, writes)
        return session.recorder, n

    recorder, n = asyncio.run(run())
    assert len(recorder.turns) == n == len(policy.generated)
    trajectories = recorder.trajectories(at_most=100)
    trained = []
    for one in trajectories:
        whole = one.prompt + one.response
        assert len(one.response) == len(one.mask) == len(one.log_probs)
        for start, end in one.spans:
            n_prompt = len(one.prompt) + start
            # The model was asked with just these tokens, and its reply stands after them.
            at = next(
                i
                for i, prompt in enumerate(policy.prompts)
                if whole[:n_prompt] == prompt
                and tuple(one.response[start:end]) == policy.generated[i].ids
            )
            masks = set(one.mask[start:end])
            assert masks in ({0}, {1})
            if masks == {1}:
                trained.append(policy.generated[at].ids)
                assert tuple(one.log_probs[start:end]) in {
                    made.log_probs for made in policy.generated
                }
        inside = {at for start, end in one.spans for at in range(start, end)}
        assert all(m == 0 and p == 0.0 for at, (m, p) in enumerate(
            zip(one.mask, one.log_probs, strict=True)) if at not in inside)  # fmt: skip
    assert sorted(trained) == sorted(made.ids for made in policy.generated)
    assert sum(one.trained for one in trajectories) == recorder.n_generated


@settings(max_examples=60, deadline=None)
@given(
    st.lists(REPLIES, min_size=1, max_size=6),
    MESSAGES,
    st.lists(MESSAGES, min_size=1),
    st.sampled_from(WAYS),
)
def test_a_client_that_only_goes_on_has_one_conversation_whose_prompts_only_grow(
    replies, first, added, writes
):
    policy = Scripted(*replies)
    actions = [("go on", added)] * (len(replies) - 1)

    async def run():
        session = Session(policy, CharCodec(), ROOMY)
        await converse(session, actions, first, writes)
        return session.recorder

    (only,) = asyncio.run(run()).trajectories(at_most=9)
    assert only.trained == sum(len(made.ids) for made in policy.generated)
    for before, made, after in zip(
        policy.prompts, policy.generated, policy.prompts[1:], strict=False
    ):
        grown = [*before, *made.ids]
        assert after[: len(grown)] == grown


def test_other_tools_begin_another_conversation_and_the_longest_comes_last():
    policy = Scripted("a", "bb", "ccc", "dddd")
    user = {"role": "user", "content": "hi"}

    async def run():
        session = Session(policy, CharCodec(), ROOMY)
        first = await reply(session, Ask(messages=(user,)))
        await reply(session, Ask(messages=(user,), tools=(TOOL,)))
        await reply(session, Ask(messages=(user, first.message, user)))
        await reply(session, Ask(messages=(user, first.message, user)))  # a retry: another branch
        return session.recorder

    recorder = asyncio.run(run())
    found = recorder.trajectories(at_most=9)
    texts = ["".join(map(chr, one.response)) for one in found]
    assert texts == ["bb\0", "a\0<user>hi\n<assistant>ccc\0", "a\0<user>hi\n<assistant>dddd\0"]
    assert [one.trained for one in found] == [3, 4, 7]
    assert found[1].mask[:2] == [0, 0] and found[2].mask[:2] == [1, 1]
    assert [one.trained for one in recorder.trajectories(at_most=1)] == [7]


@pytest.mark.parametrize(("made", "sent", "added"), CASES["replies sent back"])
def test_a_reply_is_known_however_a_client_writes_it(made, sent, added):
    made = CASES["replies"][made]
    turn = SimpleNamespace(answer=SimpleNamespace(message=made), text="Now.\n<code>ls</code>")
    found = best(sent, [turn])
    assert (None if found is None else found[1]) == added


def test_titles_are_left_out_where_conversations_with_tools_train():
    async def run():
        session = Session(Scripted("title", "work"), CharCodec(), ROOMY)
        user = {"role": "user", "content": "hi"}
        await reply(session, Ask(messages=(user,)))
        await reply(session, Ask(messages=(user,), tools=(TOOL,)))
        return session.recorder

    recorder = asyncio.run(run())
    (only,) = recorder.trajectories(9, only_tools=True)
    assert "".join(map(chr, only.response)) == "work\0"
    assert len(recorder.trajectories(9)) == 2


def test_what_a_client_adds_to_a_reply_follows_its_tokens():
    policy = Scripted("I run.", "Done.")

    async def run():
        session = Session(policy, CharCodec(), ROOMY)
        user = {"role": "user", "content": "hi"}
        said = (await reply(session, Ask(messages=(user,)))).message
        longer = {**said, "content": said["content"] + " Ran."}
        await reply(session, Ask(messages=(user, longer, user)))
        return session.recorder

    (only,) = asyncio.run(run()).trajectories(9)
    text = "".join(map(chr, only.response))
    assert text == "I run.\0<assistant>Ran.\n<user>hi\n<assistant>Done.\0"
    assert only.trained == sum(len(made.ids) for made in policy.generated)
