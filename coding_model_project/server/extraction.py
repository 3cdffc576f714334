"""Extraction of a submission's code by SandboxFusion's rules: the *first* code block counts."""

from __future__ import annotations

import re

from coding_model_project.sandbox.base import Sandbox
from coding_model_project.server.requests import SubmitRequest
from coding_model_project.types import Call, Limits, Program, Status

_BLOCK = re.compile(r"```[^\n`]*\n(.*?)\n?```", re.DOTALL)
_NEXT = re.compile(r"\n(?=def |class |if |print\(|#|@)")
_LIMITS = Limits(cpu_s=5.0, wall_s=10.0, memory_mb=512, output_kb=1024)

_OWN_LOGIC = """
class CodeBlock:
    def __init__(self, priority, code, language):
        self.priority, self.code, self.language = priority, code, language

def extract(logic, completion):
    found = []
    names = {"completion": completion, "CodeBlock": CodeBlock, "submit_code_blocks": found.extend}
    exec(logic, names)
    return max(found, key=lambda block: block.priority).code if found else ""
"""


async def extract(request: SubmitRequest, sandbox: Sandbox) -> str:
    """Return the code in a completion; empty if there is none.

    A request's own `custom_extract_logic` runs in the sandbox, never in this process. If it fails,
    there is no code.
    """
    logic = request.config.custom_extract_logic
    if logic is None:
        found = _BLOCK.search(request.completion)
        return found[1] if found else ""
    call = Call(function="extract", args=(logic, request.completion))
    (execution,) = await sandbox.run(Program(source=_OWN_LOGIC), [call], _LIMITS)
    value = execution.value
    return value if execution.status is Status.finished and isinstance(value, str) else ""


def until_next_definition(completion: str) -> str:
    """Return the body that completes a function's head: everything before the next unindented line
    that starts a definition, `print` or comment."""
    end = _NEXT.search(completion)
    return completion[: end.start()] if end else completion


def until_done(completion: str) -> str:
    """Return the text before the end mark of few-shot prompts."""
    return completion.replace("[BEGIN]", "").partition("[DONE]")[0]
