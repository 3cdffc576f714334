"""Prompts, and the answers of demonstrations."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from coding_model_project.grading.maths.gsm8k_answer import GSM8K
from coding_model_project.types import GradedBy, Problem, Turn

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
    match problem.graded_by:
        case GradedBy.math if problem.comparison == GSM8K:
            return ""  # the examples show the form
        case GradedBy.math:
            return "\n\nReason step by step, and put the final answer in \\boxed{}."
        case GradedBy.instructions | GradedBy.prediction:
            return ""  # the statement describes the form
        case GradedBy.tests | GradedBy.harbor | GradedBy.harness:
            return f"\n\nAnswer with one ```{problem.language} code block that holds the whole program."


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
