"""An agent's conversations in ATIF, Harbor's format of trajectories, which `harbor view` shows.

A message of the system or a user is a step, and so is a reply with its tool calls; the results of calls
are the observation of the step that made them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coding_model_project.episodes.tool_calls import object_text

SCHEMA = "ATIF-v1.7"
TRAJECTORY_FILE = "trajectory.json"
_SOURCES = {"system": "system", "user": "user", "assistant": "agent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation in the form of chat completions."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tokens: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Prompt and completion tokens of each reply of the model, by the number of messages before it."""


def trajectory(
    conversations: Sequence[Conversation], *, session_id: str, agent: Mapping[str, Any]
) -> dict[str, Any]:
    """Return conversations of one agent: the first is the trajectory, the others are in it.

    Args:
        agent: the agent's `name`, `version` and `model_name`.
    """
    first, *others = [
        _one(one, f"conversation-{number}", session_id, agent)
        for number, one in enumerate(conversations, 1)
    ]
    return {**first, **({"subagent_trajectories": others} if others else {})}


def _one(
    conversation: Conversation, id: str, session_id: str, agent: Mapping[str, Any]
) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    for at, message in enumerate(conversation.messages):
        if message["role"] == "tool" and steps:
            _observe(steps, message)
            continue
        source = _SOURCES.get(message["role"], "system")
        step = {"step_id": len(steps) + 1, "source": source, "message": message["content"] or ""}
        steps.append(
            step | (_acted(message, conversation.tokens.get(at)) if source == "agent" else {})
        )
    tools = {"tool_definitions": [*conversation.tools]} if conversation.tools else {}
    counts = conversation.tokens.values()
    totals = {
        "total_prompt_tokens": sum(prompt for prompt, _ in counts),
        "total_completion_tokens": sum(completion for _, completion in counts),
    }
    return {
        "schema_version": SCHEMA,
        "session_id": session_id,
        "trajectory_id": id,
        "agent": {**agent, **tools},
        "steps": steps,
        "final_metrics": {**totals, "total_steps": len(steps)},
    }


def _acted(message: Mapping[str, Any], tokens: tuple[int, int] | None) -> dict[str, Any]:
    """Return what only an agent's step has."""
    acted: dict[str, Any] = {}
    if calls := message.get("tool_calls"):
        acted["tool_calls"] = [
            {
                "tool_call_id": call["id"],
                "function_name": call["function"]["name"],
                "arguments": json.loads(object_text(call["function"]["arguments"])),
            }
            for call in calls
        ]
    if tokens is None:  # written by the client
        return {**acted, "llm_call_count": 0}
    if thought := message.get("reasoning_content"):
        acted["reasoning_content"] = thought
    metrics = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return {**acted, "llm_call_count": 1, "metrics": metrics}


def _observe(steps: list[dict[str, Any]], message: Mapping[str, Any]) -> None:
    """Add a tool's result to the latest step that made its call, or else to the last step."""
    id = message.get("tool_call_id")
    made = (one for one in reversed(steps) if id in _ids(one))
    step = next(made, steps[-1])
    source = {"source_call_id": id} if id in _ids(step) else {}
    results = step.setdefault("observation", {"results": []})["results"]
    results.append({**source, "content": message["content"]})


def _ids(step: Mapping[str, Any]) -> list[str]:
    return [call["tool_call_id"] for call in step.get("tool_calls", ())]
