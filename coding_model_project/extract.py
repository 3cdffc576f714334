"""Code from a completion, by one documented rule. The verdict records which part of it applied.

1. Everything through the last `</think>` is dropped; an unclosed `<think>` means there is no code.
2. The last fenced block tagged with the target language wins;
3. else the last untagged block that parses (for Python; any untagged block otherwise).
4. Without any fence, the text itself, but only where the prompt asked for bare code; it ends at
   `[DONE]` and starts after `[BEGIN]`.
An unclosed final fence is accepted and flagged. Whitespace is no code.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    tagged_block = "tagged_block"
    untagged_block = "untagged_block"
    bare_text = "bare_text"
    unclosed_think = "unclosed_think"
    nothing = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The code found, if any, and the rule that found it (or why there is none)."""

    code: str | None
    rule: Rule
    unclosed: bool = False


_TAGS = {"python": {"python", "py", "python3"}, "cpp": {"cpp", "c++"}, "javascript": {"javascript", "js"}}
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+#-]*)[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.M | re.S)


def extract(completion: str, *, language: str = "python", bare: bool = False) -> Extraction:
    """Find the program in a completion by the rule above."""
    text = completion.rpartition("</think>")[2]
    if "<think>" in text:
        return Extraction(code=None, rule=Rule.unclosed_think)
    text = text.partition("[DONE]")[0]
    blocks = list(_FENCE.finditer(text))
    if not blocks:
        code = text.rpartition("[BEGIN]")[2]
        if bare and code.strip():
            return Extraction(code=code, rule=Rule.bare_text)
        return Extraction(code=None, rule=Rule.nothing)
    tags = _TAGS.get(language, {language})
    for block in reversed(blocks):
        if block[1].lower() in tags and block[2].strip():
            return _found(block, Rule.tagged_block)
    for block in reversed(blocks):
        if not block[1] and block[2].strip() and (language != "python" or _parses(block[2])):
            return _found(block, Rule.untagged_block)
    return Extraction(code=None, rule=Rule.nothing)


def _found(block: re.Match[str], rule: Rule) -> Extraction:
    return Extraction(code=block[2], rule=rule, unclosed=not block[0].rstrip().endswith("```"))


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
