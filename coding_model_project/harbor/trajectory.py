"""ATIF, Harbor's format of trajectories: `harbor view` reads `agent/trajectory.json` of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import orjson

from coding_model_project.episodes.bash import Episode, Turn
from coding_model_project.episodes.bash_messages import NOT_RUN, call_id
from coding_model_project.episodes.tool_calls import BASH, object_text

FILE = "trajectory.json"
_SCHEMA = "ATIF-v1.7"


def of_episode(
    episode: Episode, prompt_tokens: Sequence[int], *, agent: str, version: str, model: str | None
) -> dict[str, Any]:
    """Return an episode as a trajectory: its opening messages, then a step per reply with its outcome.

    Args:
        prompt_tokens: the prompt tokens of each reply.
    """
    opening = [one for one in episode.messages[:2] if one["role"] != "assistant"]
    steps: list[dict[str, Any]] = [
        {"source": one["role"], "message": one["content"]} for one in opening
    ]
    counted = [*prompt_tokens, *[0] * (len(episode.turns) - len(prompt_tokens))]
    steps += [
        _step(number, turn, n_prompt)
        for number, (turn, n_prompt) in enumerate(zip(episode.turns, counted, strict=True))
    ]
    return {
        "schema_version": _SCHEMA,
        "session_id": str(uuid4()),
        "agent": {"name": agent, "version": version, **({"model_name": model} if model else {})},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {
            "total_prompt_tokens": sum(counted),
            "total_completion_tokens": sum(turn.reply.tokens for turn in episode.turns),
            "total_steps": len(steps),
        },
        "extra": {"ending": episode.ending},
    }


def _step(number: int, turn: Turn, n_prompt: int) -> dict[str, Any]:
    calls = [
        {
            "tool_call_id": call_id(number, n),
            "function_name": call.name,
            "arguments": orjson.loads(object_text(call.arguments)),
        }
        for n, call in enumerate(turn.reply.calls)
    ]
    if turn.command is not None and not calls:  # a command in a block of the text
        calls = [
            {
                "tool_call_id": call_id(number, 0),
                "function_name": BASH,
                "arguments": {"command": turn.command},
            }
        ]
    step: dict[str, Any] = {
        "source": "agent",
        "message": turn.reply.text,
        "metrics": {"prompt_tokens": n_prompt, "completion_tokens": turn.reply.tokens},
        "llm_call_count": 1,
        "extra": {
            "reply_s": round(turn.reply.seconds or 0.0, 3),
            "command_s": round(turn.command_s, 3),
            "exit_code": turn.exit_code,
        },
    }
    if calls:
        step["tool_calls"] = calls
    if turn.observation is not None:
        contents = [turn.observation, *[NOT_RUN] * (len(calls) - 1)]
        step["observation"] = {
            "results": [
                {"source_call_id": call["tool_call_id"], "content": content}
                for call, content in zip(calls, contents, strict=False)
            ]
        }
    return step
