"""Prompts, and the answers of demonstrations."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from coding_model_project.types import Problem, Turn

Message = dict[str, Any]
"""A chat message in the form of templates and servers: `role`, `content` and, if any, `tool_calls`."""


class PromptStyle(StrEnum):
    """The form of answer that a prompt asks for, which determines where `extract` looks for code."""

    bare = "bare"
    """The completion is the program itself (the embedded tiny model)."""
    fenced = "fenced"
    """The completion holds the program in a block tagged with its language (instruction-tuned models)."""


def request(problem: Problem) -> str:
    """Return the end of a message in style `fenced`, which asks for the form that the grader expects."""
    from coding_model_project.grading.kinds import KINDS  # here, since commands import the styles

    return KINDS[problem.graded_by].request(problem)


def solve_messages(
    problem: Problem, *, style: PromptStyle, system: str | None = None
) -> list[Message]:
    """Return the conversation that asks for a solution; it shows no tests beyond the statement's."""
    end = request(problem) if style is PromptStyle.fenced else ""
    *earlier, last = problem.messages or (Turn("user", problem.statement),)
    turns: list[Message] = [{"role": one.role, "content": one.content} for one in earlier]
    if system and turns and turns[0]["role"] == "system":
        turns[0]["content"] = f"{system}\n\n{turns[0]['content']}"
    elif system:
        turns.insert(0, {"role": "system", "content": system})
    return [*turns, {"role": last.role, "content": last.content + end}]


def solution_message(code: str, *, style: PromptStyle, language: str = "python") -> Message:
    """Return the answer that `solve_messages` asks for; language "text" leaves it without a fence."""
    block = f"```{language}\n{code.rstrip()}\n```"
    content = block if style is PromptStyle.fenced and language != "text" else code
    return {"role": "assistant", "content": content}
