"""A policy and a codec for the gateway: a token is a character, a reply is scripted or drawn."""

from __future__ import annotations

from coding_model_project.harbor.gateway.recorder import Ended, Generated
from coding_model_project.harbor.gateway.session import Following, Limits, TemplateRefused

END = 0


async def reply(session, ask, is_gone=None):
    """A session's answer to a request."""
    return await session.finish(await session.begin(ask, is_gone), is_gone)


ROOMY = Limits(prompt_tokens=100_000, response_tokens=100_000, context_tokens=200_000)


class CharCodec:
    """`<role>content⏎` for each message, and the tools first. A reply ends with token 0."""

    def opening(self, messages, tools):
        return self._ids(f"{tools or ''}") + self._all(messages) + self._ids("<assistant>")

    def following(self, messages, known, tools, ids, *, ended):
        closing = [] if ids[-1] == END else [END]
        return Following(added=closing + self._all(messages[known:]) + self._ids("<assistant>"))

    def decode(self, ids):
        return "".join(chr(one) for one in ids if one != END)

    def _all(self, messages):
        if any(message["content"] == "refuse me" for message in messages):
            raise TemplateRefused("the chat template refuses this")
        return [one for m in messages for one in self._ids(f"<{m['role']}>{m['content']}\n")]

    def _ids(self, text):
        return [ord(one) for one in text]


class Scripted:
    """Replies in turn; keeps what it was asked with. An exception is raised."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.prompts: list[list[int]] = []
        self.generated: list[Generated] = []
        self.stops: list[tuple[str, ...]] = []

    async def generate(self, prompt, *, max_tokens, stop):
        self.prompts.append(list(prompt))
        self.stops.append(tuple(stop))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        ids = [*map(ord, reply), END]
        cut = len(ids) > max_tokens
        ids = tuple(ids[:max_tokens])
        n = len(self.generated)
        made = Generated(
            ids=ids,
            log_probs=tuple(-(n + at / 1000) for at in range(len(ids))),
            ended=Ended.length if cut else Ended.model,
        )
        self.generated.append(made)
        return made
