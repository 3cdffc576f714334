"""The first step from a row to a problem: its prompt, as text or as a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coding_model_project import strict_json
from coding_model_project.data.loaders.base import Unusable
from coding_model_project.types import Turn

_CONTENT = ("content", "value", "text")
_ROLES = {"human": "user", "gpt": "assistant", "developer": "system"}
"""Names of roles in other forms of conversations, with ours."""

_NESTED = ("input", "messages", "prompt", "conversations")
"""Keys of objects that hold a conversation, such as NeMo Gym's `responses_create_params`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text of a prompt, and its conversation if that is more than one user's message."""

    text: str
    turns: tuple[Turn, ...] = ()


def prompt_of(value: Any, field: str) -> Prompt:
    """Return the prompt in a field: text, messages, or JSON text of messages.

    Answers at the end of a conversation are left out: a model is to write them. The system's message and
    earlier turns stay.

    Raises:
        Unusable: it is neither, has no user's message, or has an image or a tool call.
    """
    if isinstance(value, str) and value.lstrip()[:2] in ("[{", "[ ", "[\n", '{"'):
        try:
            decoded = strict_json.loads(value)
        except ValueError:
            decoded = None
        value = decoded if _is_conversation(decoded) else value
    if isinstance(value, str):
        return Prompt(value.replace("\r\n", "\n"))
    if isinstance(value, Mapping) and "role" in value:
        value = [value]
    if isinstance(value, Mapping):
        inner = next((value[name] for name in _NESTED if value.get(name)), None)
        if inner is None:
            raise Unusable(f"field '{field}' is an object without {', '.join(_NESTED)}")
        return prompt_of(inner, field)
    if not _is_conversation(value):
        raise Unusable(f"field '{field}' is not text and not a list of messages")
    turns = [_turn(turn) for turn in value]
    while turns and turns[-1].role != "user":
        turns.pop()
    if not turns:
        raise Unusable("the prompt has no user turn")
    text = "\n\n".join(turn.content for turn in turns)
    return Prompt(text, tuple(turns) if len(turns) > 1 else ())


def _is_conversation(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) > 0
        and all(isinstance(turn, Mapping) and {"role", "from"} & turn.keys() for turn in value)
    )


def _turn(turn: Mapping[str, Any]) -> Turn:
    role = str(turn.get("role") or turn.get("from"))
    role = _ROLES.get(role, role)
    if role not in ("system", "user", "assistant") or turn.get("tool_calls"):
        raise Unusable(f"the prompt has a turn of role {role!r} or with tool calls")
    content = next((turn[name] for name in _CONTENT if turn.get(name) is not None), "")
    return Turn(role=role, content=_text(content).replace("\r\n", "\n"))


def _text(content: Any) -> str:
    """Return a message's text, which may come in parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise Unusable("a message of the prompt is not text")
    texts = [
        part if isinstance(part, str) else part.get("text")
        for part in content
        if isinstance(part, str | Mapping)
    ]
    if len(texts) != len(content) or not all(isinstance(one, str) for one in texts):
        raise Unusable("the prompt holds an image or another part that is not text")
    return "\n".join(str(one) for one in texts)
