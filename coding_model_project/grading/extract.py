"""Code from a completion, by one documented rule. The verdict records which part of it applied.

1. Everything through the last `</think>` is dropped; an unclosed `<think>` means there is no code.
2. The text ends at `[DONE]`, unless that is quoted: a program may print it.
3. The last fenced block tagged with the target language wins;
4. else the last untagged block that parses (for Python; any untagged block otherwise).
5. Without any fence, the text itself, but only where the prompt asked for bare code; it starts
   after `[BEGIN]`.

An unclosed final fence is accepted and flagged. Whitespace is no code.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """Which part of the rule decided."""

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
    """The block has no closing fence: the completion was probably cut off."""


_TAGS = {
    "python": {"python", "py", "python3"},
    "cpp": {"cpp", "c++", "cc", "cxx"},
    "javascript": {"javascript", "js", "node", "nodejs", "mjs"},
    "bash": {"bash", "sh", "shell"},
}
# A fence opens on a line of its own and closes at the end of any line ("print(1)```" is common).
_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})(?P<info>[^\n`]*)\n"
    r"(?P<code>.*?)(?P<close>(?P=fence)[ \t\r]*$|\Z)",
    re.M | re.S,
)
_DONE = re.compile(r"(?<![\"'])\[DONE\]")
_BEGIN = re.compile(r"(?<![\"'])\[BEGIN\]")


def extract(completion: str, *, language: str = "python", bare: bool = False) -> Extraction:
    """Find the program in a completion by the rule above.

    Args:
        language: the language that the problem asks for, as in `Problem.language`.
        bare: the prompt asked for the program itself, without a fence.
    """
    text = completion.rpartition("</think>")[2]
    if "<think>" in text:
        return Extraction(code=None, rule=Rule.unclosed_think)
    text = _DONE.split(text, maxsplit=1)[0]
    blocks = list(_FENCE.finditer(text))
    if not blocks:
        code = _BEGIN.split(text)[-1]
        if bare and code.strip():
            return Extraction(code=code, rule=Rule.bare_text)
        return Extraction(code=None, rule=Rule.nothing)
    tags = _tags(language)
    for block in reversed(blocks):
        if _tag(block) in tags and block["code"].strip():
            return _found(block, Rule.tagged_block)
    for block in reversed(blocks):
        if not _tag(block) and block["code"].strip():
            found = _found(block, Rule.untagged_block)
            if language != "python" or _parses(found.code or ""):
                return found
    return Extraction(code=None, rule=Rule.nothing)


def is_one_block(completion: str, *, language: str = "python") -> bool:
    """Whether a completion, what it thinks apart, is one closed block in its language and no more."""
    text = completion.rpartition("</think>")[2].strip()
    blocks = list(_FENCE.finditer(text))
    if len(blocks) != 1 or blocks[0].span() != (0, len(text)):
        return False
    return bool(blocks[0]["close"]) and _tag(blocks[0]) in _tags(language)


def first_block(completion: str, *, language: str) -> str | None:
    """The content of the first closed block in a language that is not empty; what is thought apart.

    For conversations in which a block is acted on: what follows it was written without knowing what came
    of it. Anything but a closed block of that tag may be meant for a reader.
    """
    text = completion.rpartition("</think>")[2]
    if "<think>" in text:
        return None
    for block in _FENCE.finditer(text):
        if block["close"] and _tag(block) in _tags(language) and block["code"].strip():
            return _found(block, Rule.tagged_block).code
    return None


def _tags(language: str) -> set[str]:
    return next((known for known in _TAGS.values() if language in known), {language})


def _tag(block: re.Match[str]) -> str:
    words = block["info"].split()
    return words[0].lower() if words else ""


def _found(block: re.Match[str], rule: Rule) -> Extraction:
    code, indent = block["code"], len(block["indent"])
    if indent:  # a fence within a list item: its content is indented as it is
        code = re.sub(rf"^[ \t]{{1,{indent}}}", "", code, flags=re.M)
    return Extraction(code=code, rule=rule, unclosed=not block["close"])


def _parses(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in untrusted code is not ours
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
