"""Requests and replies in one form for all APIs, and the reading that the APIs share.

Of the sampling options only a length and stop texts apply; the training sets the others.
"""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any, Self

from coding_model_project import strict_json
from coding_model_project.episodes.tool_calls import ToolCall, parse, split_thought

MODEL = "policy"
"""The model's name. Requests for any other name get this model."""

Message = dict[str, Any]
"""A message as chat templates take it: `role`, text `content`, and perhaps `reasoning_content`,
`tool_calls`, `tool_call_id` and `name`."""

_TEXTS = frozenset(
    ["text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text"]
)
"""Types of parts that are text."""
_MOST_STOPS = 16
_MOST_NAMES, _NAME_CHARS = 32, 40


@dataclass(eq=False)
class RequestError(Exception):
    """A rejected request, as the client receives it."""

    message: str
    """One line."""
    _: KW_ONLY
    status: int = 400
    kind: str = "invalid_request_error"
    code: str | None = None
    """OpenAI's error code, if there is one."""
    param: str | None = None
    """The invalid field of the request."""
    tokens: tuple[int, int] | None = None
    """The prompt's length and the most that is possible, if it is too long."""

    def body(self) -> dict[str, Any]:
        """Return the error in OpenAI's format."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}


class Ended(StrEnum):
    """The cause of a reply's end."""

    model = "model"
    """The model ended it."""
    length = "length"
    stop = "stop"
    """It reached one of the client's stop texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A valid request for one reply."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """In the form of chat completions, which templates expect."""
    calls_tools: bool = True
    """True if tool calls in the reply are parsed."""
    one_call: bool = False
    """True if the client gets the first call only."""
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    """Names of the request's options that have no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(ToolCall):
    """A tool call in a reply."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply, for the API that the client speaks."""

    thought: str
    """Without its marks; empty if the model wrote none."""
    text: str
    """The text after the thought and outside of calls."""
    calls: tuple[Call, ...]
    ended: Ended
    stopped_at: str | None
    """The client's stop text that ended it."""
    prompt_tokens: int
    completion_tokens: int

    @property
    def message(self) -> Message:
        """Return the reply as a message of chat completions."""
        message: Message = {"role": "assistant", "content": self.text}
        if self.thought:
            message["reasoning_content"] = self.thought
        if self.calls:
            message["content"] = self.text or None
            message["tool_calls"] = [one.openai(one.id) for one in self.calls]
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange(ABC):
    """A request of one API, and its reply in that API's form."""

    ask: Ask
    stream: bool
    id: str
    """Of the reply."""

    @classmethod
    @abstractmethod
    def read(cls, body: bytes) -> Self:
        """Read a request's body.

        Raises:
            RequestError: it is malformed, or uses an unsupported option.
        """

    @abstractmethod
    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the reply as one JSON object."""

    @abstractmethod
    def begin(self, prompt_tokens: int) -> Iterator[str]:
        """Yield a stream's events before the model has replied."""

    def waiting(self) -> str:
        """Return a sign of life for a stream."""
        return ": wait\n\n"

    @abstractmethod
    def rest(self, answer: Answer) -> Iterator[str]:
        """Yield the events of the reply, up to the stream's end."""

    def failed(self, error: RequestError) -> str:
        """Return the event that ends a stream without a reply."""
        return event(**error.body())


class Reading:
    """A request that is read: its fields, and the names of those that have no effect.

    Args:
        body: the request's body. Half a surrogate pair in it becomes U+FFFD.

    Raises:
        RequestError: it is not a JSON object. All methods raise it for a malformed field.
    """

    def __init__(self, body: bytes) -> None:
        self.given = read_object(body)
        self._read, self.ignored = {"model"}, set[str]()

    def get(self, name: str) -> Any:
        """Return a field's value, which has an effect."""
        self._read.add(name)
        return self.given.get(name)

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Refuse options by name. The names of each reason are separated by spaces."""
        for reason, names in reasons.items():
            for name in names.split():
                if self.get(name):
                    raise wrong(name, f"is not supported: {reason}")

    def text_only(self, form: Any, name: str) -> None:
        """Note a demanded format of the reply, which the policy cannot be held to: the client checks."""
        if form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
            self.ignored.add(name)

    def calls_tools(self, choice: Any) -> bool:
        """Return whether the reply may call tools. The policy cannot be held to a demanded call."""
        if choice not in (None, "auto", "none"):
            self.ignored.add("tool_choice")
        return choice != "none"

    def content(self, given: Any, where: str) -> str:
        """Return content that is text or a list of parts, with notes in place of what is not text."""
        if isinstance(given, str):
            return given
        if not isinstance(given, list):
            raise wrong(where, "must be text, or a list of parts of type text")
        texts = []
        for at, part in enumerate(given):
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(kind, str):
                raise wrong(f"{where}[{at}].type", "must be the type of a part, such as text")
            if kind in _TEXTS:
                texts.append(text_of(part.get("text", part.get(kind)), f"{where}[{at}].text"))
                continue
            self.ignored.add(kind)
            texts.append(f"[{kind:.40} left out: the model reads text only]")
        return "\n".join(texts)

    def whole_number(self, *names: str) -> int | None:
        """Return the first of these fields that is given."""
        for name in names:
            if (value := self.get(name)) is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise wrong(name, "must be a whole number above 0")
            return value
        return None

    def stops(self, name: str) -> tuple[str, ...]:
        """Return a field's stop texts."""
        given = self.get(name)
        stops = [given] if isinstance(given, str) else given
        if stops is None:
            return ()
        whole = isinstance(stops, list) and all(isinstance(one, str) and one for one in stops)
        if not whole or len(stops) > _MOST_STOPS:
            raise wrong(name, f"must be a text, or a list of at most {_MOST_STOPS} texts")
        return tuple(stops)

    def flag(self, name: str) -> bool:
        """Return a field that is true or false."""
        value = self.get(name)
        if value not in (None, True, False):
            raise wrong(name, "must be true or false")
        return bool(value)

    def ask(self, messages: Sequence[Message], **options: Any) -> Ask:
        """Return the request, after all its fields were read."""
        if not messages:
            raise RequestError("no messages: a request must have at least one")
        if messages[-1]["role"] == "assistant":
            raise RequestError("the last message must not have the role assistant")
        given = {name for name, value in self.given.items() if value is not None}
        names = sorted(self.ignored | (given - self._read))[:_MOST_NAMES]
        ignored = frozenset(name[:_NAME_CHARS] for name in names)
        return Ask(messages=tuple(messages), ignored=ignored, **options)


def read_object(body: bytes) -> dict[str, Any]:
    """Read a request's JSON object.

    Raises:
        RequestError: it is not a JSON object.
    """
    try:
        given = strict_json.loads(body, repair=True)
    except ValueError as error:
        raise RequestError(f"the request is not JSON that can be used: {error!s:.200}") from error
    if not isinstance(given, dict):
        raise RequestError("the request is not a JSON object")
    return given


def read_reply(
    ask: Ask,
    whole: str,
    *,
    ended: Ended,
    prompt_tokens: int,
    completion_tokens: int,
    thought: str = "",
    calls: Sequence[ToolCall] = (),
) -> tuple[Answer, str]:
    """Return a reply for its client, and its whole text after the thought.

    Args:
        whole: the model's text, perhaps with a thought and with calls.
        thought, calls: those that a server has taken out of the text.
    """
    ends = [(at, stop) for stop in ask.stop if (at := whole.find(stop)) >= 0]
    at, stopped_at = min(ends, default=(len(whole), None))
    content = whole[:at]
    if not ask.calls_tools or not ask.tools:
        calls = ()
    elif not calls and (parsed := parse(content)).calls:
        content, calls = parsed.content or "", parsed.calls
    own, text = split_thought(content)
    thought = thought.strip() or own
    answer = Answer(
        thought=thought,
        text=text.strip() if thought else text,
        calls=tuple(
            Call(id=f"call_{secrets.token_hex(12)}", name=one.name, arguments=one.arguments)
            for one in calls[: 1 if ask.one_call else None]
        ),
        ended=ended,
        stopped_at=stopped_at,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )
    return answer, split_thought(whole)[1]


def items_of(given: Any, where: str) -> list[dict[str, Any]]:
    """Return a field that is a list of objects."""
    if not isinstance(given, list):
        raise wrong(where, "must be a list of objects")
    for at, one in enumerate(given):
        if not isinstance(one, dict):
            raise wrong(f"{where}[{at}]", "must be an object")
    return given


def text_of(given: Any, where: str) -> str:
    """Return a field that is text."""
    if not isinstance(given, str):
        raise wrong(where, "must be text")
    return given


def join(message: Message, name: str, text: str) -> None:
    """Add a text to a message's field."""
    message[name] = "\n".join(part for part in (message.get(name), text) if part)


def assistant_at_end(messages: list[Message]) -> Message:
    """Return the assistant's message at the end, a new one if the last is another's."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def function_tool(name: str, description: Any, parameters: Any) -> dict[str, Any]:
    """Return a tool in the form of chat completions."""
    told = {"description": description} if isinstance(description, str) and description else {}
    schema = parameters if isinstance(parameters, dict) else {"type": "object"}
    return {"type": "function", "function": {"name": name, **told, "parameters": schema}}


def wrong(param: str, problem: str) -> RequestError:
    """Return an error about a field."""
    return RequestError(f"{param} {problem}", param=param)


def event(**data: Any) -> str:
    """Return a server-sent event, named by its `type` if it has one."""
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n"
