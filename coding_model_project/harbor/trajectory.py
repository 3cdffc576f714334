"""ATIF, Harbor's format of trajectories: `harbor view` reads `agent/trajectory.json` of a trial.

A message of the system or a user is a step, and so is a reply with its tool calls; the results of calls
are the observation of the step that made them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import orjson

from coding_model_project.episodes.bash import Episode, outcome, reply_message
from coding_model_project.episodes.tool_calls import bash_call, object_text
from coding_model_project.harbor.gateway.recorder import Recorder
from coding_model_project.harbor.gateway.recorder import Turn as AgentTurn
from coding_model_project.harbor.gateway.requests import Message

_SCHEMA = "ATIF-v1.7"
_SOURCES = {"user": "user", "assistant": "agent"}


def of_episode(episode: Episode, agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return an episode as a trajectory: its opening messages, then a step per reply with its outcome.

    Args:
        agent: "name", "version" and "model_name".
    """
    steps = [_said(one) for one in episode.messages[:2]]
    for number, turn in enumerate(episode.turns):
        reply, calls = turn.reply, turn.reply.calls
        if turn.command is not None and not calls:  # a command in a block of the text
            calls = (bash_call(turn.command),)
        made = {
            "metrics": _tokens(reply.prompt_tokens, reply.tokens),
            "llm_call_count": 1,
            "extra": {
                "reply_s": round(reply.seconds or 0.0, 3),
                "command_s": round(turn.command_s, 3),
                "exit_code": turn.exit_code,
            },
        }
        steps.append(_said(reply_message(number, reply.text, calls)) | made)
        if turn.observation is not None and calls:
            for message in outcome(number, calls, turn.observation):
                _observe(steps, message)
    return _trajectory(agent, steps, extra={"ending": episode.ending})


def of_conversations(recorder: Recorder, agent: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an agent's longest conversation, with the others in it; None if the model never replied."""
    session = str(uuid4())
    found = []
    for number, end in enumerate(recorder.ends(), 1):
        offered = {"tool_definitions": [*end.tools]} if end.tools else {}
        about = {"session_id": session, "trajectory_id": f"conversation-{number}"}
        found.append(_trajectory({**agent, **offered}, _conversation(end), **about))
    if not found:
        return None
    first, *others = found
    return {**first, **({"subagent_trajectories": others} if others else {})}


def _trajectory(
    agent: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], **more: Any
) -> dict[str, Any]:
    """Return a trajectory with numbered steps, and the sums of their tokens."""
    counts = [step["metrics"] for step in steps if "metrics" in step]
    return {
        "schema_version": _SCHEMA,
        "session_id": str(uuid4()),
        "agent": agent,
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {
            "total_prompt_tokens": sum(one["prompt_tokens"] for one in counts),
            "total_completion_tokens": sum(one["completion_tokens"] for one in counts),
            "total_steps": len(steps),
        },
        **more,
    }


def _conversation(end: AgentTurn) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for turn in end.path():
        for message in turn.said:
            if message["role"] == "tool" and steps:
                _observe(steps, message)
            elif message["role"] == "assistant":  # written by the client
                steps.append(_said(message) | {"llm_call_count": 0})
            else:
                steps.append(_said(message))
        answer = turn.answer
        thought = {"reasoning_content": answer.thought} if answer.thought else {}
        tokens = _tokens(answer.prompt_tokens, answer.completion_tokens)
        steps.append(_said(answer.message) | thought | {"llm_call_count": 1, "metrics": tokens})
    return steps


def _tokens(n_prompt: int, n_completion: int) -> dict[str, int]:
    return {"prompt_tokens": n_prompt, "completion_tokens": n_completion}


def _said(message: Message) -> dict[str, Any]:
    source = _SOURCES.get(message["role"], "system")
    calls = [
        {
            "tool_call_id": call["id"],
            "function_name": call["function"]["name"],
            "arguments": orjson.loads(object_text(call["function"]["arguments"])),
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
