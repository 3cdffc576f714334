"""Prompts, and the answers that demonstrations show."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from coding_model_project.types import GradedBy, Problem

Message = dict[str, Any]
"""`role`, `content` and, of calls of tools, `tool_calls`: as chat templates and servers take them."""


class PromptStyle(StrEnum):
    """The form of answer that a prompt asks for, and so the place where `extract` looks for the code."""

    bare = "bare"
    """The completion is the program itself (the embedded tiny model)."""
    fenced = "fenced"
    """The program stands in a block tagged with its language (instruction-tuned models)."""


def request(problem: Problem) -> str:
    """The end of a message in style `fenced`: the form of the answer that the grader looks for."""
    match problem.graded_by:
        case GradedBy.math:
            return "\n\nReason step by step, and put the final answer in \\boxed{}."
        case GradedBy.instructions | GradedBy.prediction:
            return ""  # the statement says all
        case GradedBy.tests | GradedBy.harbor | GradedBy.harness:
            return f"\n\nAnswer with one ```{problem.language} code block that holds the whole program."


def solve_messages(
    problem: Problem, *, style: PromptStyle, system: str | None = None
) -> list[Message]:
    """The conversation that asks for a solution; no test is shown unless the statement does."""
    end = request(problem) if style is PromptStyle.fenced else ""
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": problem.statement + end}]


def solution_message(code: str, *, style: PromptStyle, language: str = "python") -> Message:
    """The answer that `solve_messages` asks for, given its code; a text ("text") stands as it is."""
    block = f"```{language}\n{code.rstrip()}\n```"
    content = block if style is PromptStyle.fenced and language != "text" else code
    return {"role": "assistant", "content": content}
