"""An agent's conversations in ATIF, Harbor's format of trajectories, which `harbor view` shows.

A message of the system or a user is a step, and so is a reply with its tool calls; the results of calls
are the observation of the step that made them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from coding_model_project.episodes.tool_calls import object_text
from coding_model_project.harbor.gateway.recorder import Recorder, Turn
from coding_model_project.harbor.gateway.requests import Message

_SCHEMA = "ATIF-v1.7"
_SOURCES = {"user": "user", "assistant": "agent"}


def trajectory(recorder: Recorder, agent: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an agent's longest conversation, with the others in it; None if the model never replied.

    Args:
        agent: the agent's `name`, `version` and `model_name`.
    """
    session = {"session_id": str(uuid4())}
    found = [
        {"schema_version": _SCHEMA, "trajectory_id": f"conversation-{number}"}
        | session
        | _conversation(end, agent)
        for number, end in enumerate(recorder.ends(), 1)
    ]
    if not found:
        return None
    first, *others = found
    return {**first, **({"subagent_trajectories": others} if others else {})}


def messages(end: Turn) -> list[Message]:
    """Return the messages of a conversation."""
    return [message for turn in end.path() for message in (*turn.said, turn.answer.message)]


def _conversation(end: Turn, agent: Mapping[str, Any]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    for turn in end.path():
        for message in turn.said:
            if message["role"] == "tool" and steps:
                _observe(steps, message)
            elif message["role"] == "assistant":  # written by the client
                steps.append(_step(message) | {"llm_call_count": 0})
            else:
                steps.append(_step(message))
        answer = turn.answer
        thought = {"reasoning_content": answer.thought} if answer.thought else {}
        tokens = {"prompt_tokens": answer.prompt_tokens}
        tokens |= {"completion_tokens": answer.completion_tokens}
        steps.append(_step(answer.message) | thought | {"llm_call_count": 1, "metrics": tokens})
    answers = [turn.answer for turn in end.path()]
    return {
        "agent": {**agent, **({"tool_definitions": [*end.tools]} if end.tools else {})},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {
            "total_prompt_tokens": sum(one.prompt_tokens for one in answers),
            "total_completion_tokens": sum(one.completion_tokens for one in answers),
            "total_steps": len(steps),
        },
    }


def _step(message: Message) -> dict[str, Any]:
    source = _SOURCES.get(message["role"], "system")
    calls = [
        {
            "tool_call_id": call["id"],
            "function_name": call["function"]["name"],
            "arguments": json.loads(object_text(call["function"]["arguments"])),
        }
        for call in message.get("tool_calls", ())
    ]
    step = {"source": source, "message": message["content"] or ""}
    return step | ({"tool_calls": calls} if calls else {})


def _observe(steps: list[dict[str, Any]], message: Message) -> None:
    """Add a tool's result to the latest step that made its call, or else to the last step."""
    id = message.get("tool_call_id")
    made = (one for one in reversed(steps) if id in _ids(one))
    step = next(made, steps[-1])
    source = {"source_call_id": id} if id in _ids(step) else {}
    results = step.setdefault("observation", {"results": []})["results"]
    results.append({**source, "content": message["content"]})


def _ids(step: Mapping[str, Any]) -> list[str]:
    return [call["tool_call_id"] for call in step.get("tool_calls", ())]
