"""Extraction of code from a completion (docs/grading.md). The verdict records the rule that applied.

1. Reasoning is dropped, and the markers `[BEGIN]` and `[DONE]` delimit code; see below.
2. Candidates are the fenced blocks (`grading.fences`) tagged with the target language, and untagged
   ones; untagged blocks must parse if the language is Python. A session (`>>> `) and a blank block are
   not programs.
3. A block that fits the tests wins over one that does not: it defines a function that they call, or reads
   standard input if they write it. Next, a tagged block wins over an untagged
   one, and a later one over an earlier one.
4. Without any fence, the text itself is the code, if it follows `[BEGIN]` or the prompt asked for bare
   code. Such a text counts as code too if it parses as Python, even if its literals hold fences.

Markers count except inside a program:

- An answer starts after the last `</think>`. One in quotes (`"</think>"`) is text, and so is one in a
  block that parses as Python, where it is in a literal or a comment. After the end of the reasoning, one
  in any other closed block, such as a program's output, is text too.
- After an unclosed `<think>`, outside quotes and blocks, there is no answer.
- `[BEGIN]` at the start of a line, outside blocks, begins a program; the next `[DONE]` ends it.
- Otherwise `[DONE]` counts only if the prompt asks for bare code.

An unclosed final fence is accepted and flagged. Only the first `MAX_CHARACTERS` of an answer are read;
the verdict records longer ones. Every step takes time linear in the completion's length, and Python's
parser reads at most `literals.MAX_PARSED_OF_A_TEXT` of it; any further program counts as parsed.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from coding_model_project.grading.fences import (
    Block,
    Fences,
    language_of,
    opener_of,
    without_end_tokens,
)
from coding_model_project.grading.literals import MAX_PARSED_OF_A_TEXT, parse_budget, parses
from coding_model_project.types import Asserts, Call, Problem, Stdin

MAX_CHARACTERS = 1 << 20
"""Maximum number of characters read of an answer without its reasoning."""


class Rule(StrEnum):
    """The extraction rule that applied."""

    tagged_block = "tagged_block"
    untagged_block = "untagged_block"
    marked_text = "marked_text"
    """Text between `[BEGIN]` and `[DONE]`, without a fence."""
    bare_text = "bare_text"
    whole_text = "whole_text"
    """The text for a problem that does not ask for a program."""
    unclosed_think = "unclosed_think"
    nothing = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The extracted code, if any, and the rule that applied."""

    code: str | None
    rule: Rule
    unclosed: bool = False
    """True if the block has no closing fence: the completion was probably truncated."""
    capped: bool = False
    """True if the answer is longer than `MAX_CHARACTERS`: the rest was not read."""

    @property
    def label(self) -> str:
        """The rule's name for a verdict, such as "tagged_block" or "tagged_block+capped"."""
        return f"{self.rule}+capped" if self.capped else str(self.rule)


@contextmanager
def of_one_text() -> Iterator[None]:
    """Let the code inside, which searches one text, parse programs of `MAX_PARSED_OF_A_TEXT` in all."""
    token = parse_budget.set(MAX_PARSED_OF_A_TEXT)
    try:
        yield
    finally:
        parse_budget.reset(token)


def extract_for(problem: Problem, completion: str, *, bare: bool = False) -> Extraction:
    """Extract the answer to a problem: a program by `extract`, or the text without its reasoning."""
    if not problem.asks_for_code:
        return _text(completion)
    return extract(completion, language=problem.language, bare=bare, problem=problem)


@of_one_text()
def extract(
    completion: str,
    *,
    language: str = "python",
    bare: bool = False,
    problem: Problem | None = None,
) -> Extraction:
    """Extract the program from a completion by the rules above.

    Args:
        language: the problem's language, as in `Problem.language`.
        bare: whether the prompt asked for the program itself, without a fence.
        problem: the problem whose tests select one of several blocks; by default the last block wins.
    """
    language = language_of(language)
    answer = answer_of(without_end_tokens(completion), language, bare=bare)
    if answer is None:
        return Extraction(code=None, rule=Rule.unclosed_think)
    capped, text = len(answer) > MAX_CHARACTERS, answer[:MAX_CHARACTERS]
    text = until_done(text, language) if bare else text
    marked = marked_program(text, language)
    text = text if marked is None else marked
    itself = Rule.bare_text if bare else Rule.marked_text if marked is not None else None
    has_fence = "```" in text or "~~~" in text
    blocks: list[Block] = []
    if has_fence and not (itself and language == "python" and parses(text)):
        fences = Fences(text, language)
        blocks = list(fences.blocks())
        block = _chosen(blocks, language, problem)
        if block is None and any(one.language not in ("", language) for one in blocks):
            block = _chosen(fences.blocks(inside_others=True), language, problem)
        if block is not None:
            return Extraction(
                code=without_marker_lines(block.code),
                rule=Rule.tagged_block if block.language else Rule.untagged_block,
                unclosed=not block.closed,
                capped=capped,
            )
    written = any(block.code.strip() or block.language for block in blocks)
    if itself and not written and text.strip():
        return Extraction(code=text, rule=itself, capped=capped)
    return Extraction(code=None, rule=Rule.nothing, capped=capped)


@of_one_text()
def is_one_block(completion: str, *, language: str = "python") -> bool:
    """Return whether a completion without its reasoning is exactly one closed block in the language."""
    language = language_of(language)
    answer = (answer_of(completion, language) or "").strip()
    if len(answer) > MAX_CHARACTERS:
        return False
    fences = Fences(answer, language)
    block = next(fences.blocks(), None)
    return (
        block is not None
        and (block.first, block.end) == (0, len(fences.lines))
        and block.closed
        and not block.inside
        and block.language == language
    )


@of_one_text()
def first_block(completion: str, *, language: str) -> str | None:
    """Return the first closed, non-empty block in a language, outside of reasoning; None without one.

    It is for conversations that execute a block: the model wrote any later text without knowing the
    result. Untagged, unclosed or other blocks may be meant for a reader.
    """
    language = language_of(language)
    answer = answer_of(completion, language)
    blocks = Fences((answer or "")[:MAX_CHARACTERS], language).blocks()
    found = (one.code for one in blocks if one.closed and one.language == language)
    return next((code for code in found if code.strip()), None)


@of_one_text()
def _text(completion: str) -> Extraction:
    answer = answer_of(completion, "text")
    if answer is None:
        return Extraction(code=None, rule=Rule.unclosed_think)
    capped = len(answer) > MAX_CHARACTERS
    if not answer.strip():
        return Extraction(code=None, rule=Rule.nothing, capped=capped)
    return Extraction(code=answer[:MAX_CHARACTERS], rule=Rule.whole_text, capped=capped)


def _chosen(blocks: Iterable[Block], language: str, problem: Problem | None) -> Block | None:
    candidates = [block for block in blocks if _may_be_program(block, language)]
    if problem is not None and len(candidates) > 1:
        fitting = [block for block in candidates if fits(block.code, problem)]
        return _best(fitting, language) or _best(candidates, language)
    return _best(candidates, language)


def _best(blocks: list[Block], language: str) -> Block | None:
    """Return the last tagged block, else the last untagged one that parses."""
    tagged = (block for block in reversed(blocks) if block.language)
    untagged = (block for block in reversed(blocks) if not block.language)
    readable = (block for block in untagged if language != "python" or parses(block.code))
    return next(tagged, None) or next(readable, None)


def _may_be_program(block: Block, language: str) -> bool:
    code = without_marker_lines(block.code).lstrip()
    return bool(code) and block.language in ("", language) and not code.startswith(">>> ")


_READS = {
    "python": r"\binput\s*\(|\bstdin\b(?!\s*=[^=])|\bopen\s*\(\s*0\b|\bfileinput\b|/dev/stdin"
    r"|\bos\.read\s*\(",
    "cpp": r"\bmain\s*\(",
    "javascript": r"\bstdin\b|\breadline\b|\breadFileSync\b",
    "java": r"\bvoid\s+main\s*\(",
    "go": r"\bfunc\s+main\s*\(",
    "rust": r"\bfn\s+main\s*\(",
}
"""Patterns of programs that read standard input, by language; Bash has too many ways to do so."""

_CALLED = re.compile(r"\b([A-Za-z_]\w*)[ \t]*\(")


_DEFINITIONS = {
    "cpp": r"\b{name}\s*\([^;{{}}]{{0,400}}\)\s*(?:const\s*)?\{{",
    "java": r"\b{name}\s*\([^;{{}}]{{0,400}}\)[^;{{}}]{{0,100}}\{{",
    "javascript": r"\bfunction\s+{name}\b|\b{name}\s*=[^=]",
    "go": r"\bfunc\s+{name}\b",
    "rust": r"\bfn\s+{name}\b",
}
"""Patterns of programs that define a function, by language; lengths are bounded to stay linear."""


def is_entry_point(name: str) -> bool:
    """Return whether tests can find a function by a name: `add`, `Solution.add` or `Solution().add`."""
    return all(part.removesuffix("()").isidentifier() for part in name.split("."))


def fits(code: str, problem: Problem) -> bool:
    """Return whether code defines a name that tests call, or reads standard input if they write it."""
    if problem.language in _DEFINITIONS and problem.entry_point and problem.harness:
        definition = _DEFINITIONS[problem.language].format(name=re.escape(problem.entry_point))
        return re.search(definition, code) is not None
    if any(isinstance(test.input, Stdin) for test in problem.tests):
        reads = _READS.get(problem.language)
        return reads is None or re.search(reads, code) is not None
    return any(_defines(code, name) for name in _names(problem))


def _names(problem: Problem) -> Iterable[str]:
    """Return the functions and classes that the tests appear to call, except builtins."""
    names = {problem.entry_point} if problem.entry_point else set()
    for test in problem.tests:
        match test.input:
            case Call(function=name):
                names.add(name)
            case Asserts(entry_point=str(name)):
                names.add(name)
            case Asserts(source=source):
                called = _CALLED.findall(source)
                names.update(name for name in called if not hasattr(builtins, name))
            case _:
                pass
    return names


def _defines(code: str, name: str) -> bool:
    owner, _, method = name.replace("()", "").rpartition(".")
    if owner:
        owner = owner.partition(".")[0]
        return re.search(rf"^class[ \t]+{re.escape(owner)}\b", code, re.M) is not None
    name = re.escape(method)
    if re.search(rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b|^{name}[ \t]*[:=]", code, re.M):
        return True
    in_solution = rf"^[ \t]+(?:async[ \t]+)?def[ \t]+{name}\b"
    return "class Solution" in code and re.search(in_solution, code, re.M) is not None


MAX_MARKERS = 8
"""Maximum number of final `</think>` that may be text of a program, and of ends tried."""

_THINK = re.compile(r"</?think>")
_QUOTED_THINK = re.compile(r"(['\"`])(</?think)>(?=\1)")
_BEGIN = re.compile(r"^[ \t]*\[BEGIN\](?:[ \t\r]*(?:\n|\Z)|(?=[ \t]*[A-Za-z@#]))", re.M)
_DONE_FIRST = re.compile(r"^[ \t]*\[DONE\](?=\s|\Z)", re.M)
_DONE = re.compile(r"(?<![\"'])\[DONE\]")
_AROUND_CODE = re.compile(r"\A\s*\[BEGIN\]\n|(?<=\n)\[DONE\]\s*\Z")


def answer_of(completion: str, language: str, *, bare: bool = False) -> str | None:
    """Return a completion without its reasoning; None if the reasoning does not end.

    Args:
        bare: whether the prompt asked for bare code, which starts at the first position (the beginning,
            or after a `</think>`) from which the rest parses as Python.
    """
    if "think>" not in completion:
        return completion
    searched = _without_literals(completion, language)
    ends = (found.end() for found in _THINK.finditer(searched) if found[0] == "</think>")
    starts = [0, *ends][-MAX_MARKERS - 1 :]
    if bare and language == "python":
        for start in starts:
            if parses(completion[start:]):
                return completion[start:]
    start = starts[0]
    while True:
        end, thinking = _end_of_reasoning(searched[start:], language)
        if not end:
            return None if thinking else completion[start:]
        start += end


def _without_literals(completion: str, language: str) -> str:
    """Replace markers by text of equal length in quotes and in a program after `[BEGIN]` that parses."""
    text = _QUOTED_THINK.sub(r"\1\2 ", completion)
    *_, begin = [0, *(found.end() for found in _BEGIN.finditer(completion))]
    program = until_done(completion[begin:], language) if begin and language == "python" else ""
    if "think>" not in program or not parses(program):
        return text
    end = begin + len(program)
    return text[:begin] + text[begin:end].replace("think>", "think ") + text[end:]


def _end_of_reasoning(text: str, language: str) -> tuple[int, bool]:
    """Return where reasoning first ends, 0 without an end; and whether it began before."""
    fences, thinking = Fences(text, language), False
    for found, line, block in _located(fences, _THINK.finditer(text)):
        if found[0] == "<think>":
            thinking = thinking or block is None
        elif block is None or not _is_text(block, line, fences, language, thinking=thinking):
            return found.end(), thinking
    return 0, thinking


def _is_text(block: Block, line: int, fences: Fences, language: str, *, thinking: bool) -> bool:
    """Return whether a `</think>` belongs to the text of its block."""
    if language == "python" and block.language in ("", language):
        if parses(block.code):
            return True
        if block.language == language:
            return False
    after = fences.lines[line + 1 : block.end - 1]
    return block.closed and not thinking and not any(opener_of(one, 0) for one in after)


def marked_program(answer: str, language: str) -> str | None:
    """Return the text between `[BEGIN]` and `[DONE]`; None without a `[BEGIN]`."""
    if "[BEGIN]" not in answer:
        return None
    located = _located(Fences(answer, language), _BEGIN.finditer(answer))
    begin = next((found for found, _, block in located if block is None), None)
    if begin is None or _in_literal(answer, begin.start(), begin.end(), language):
        return None
    return until_done(answer[begin.end() :], language)


def until_done(text: str, language: str) -> str:
    """Cut a program at `[DONE]`, which stands on its own line or after the program's last line.

    A Python program ends at the first one up to which it parses, so that a literal may hold the marker.
    """
    if "[DONE]" not in text:
        return text
    own_line = [found.start() for found in islice(_DONE_FIRST.finditer(text), MAX_MARKERS)]
    last = len(text.rstrip()) - len("[DONE]")
    is_last = text.startswith("[DONE]", last)
    if language == "python":
        for end in own_line:
            if parses(text[:end]):
                return text[:end]
        if parses(text) and not (is_last and not _in_literal(text, last, len(text), language)):
            return text
        if not own_line and not is_last:
            inline = (found.start() for found in islice(_DONE.finditer(text), MAX_MARKERS))
            return next((text[:end] for end in inline if parses(text[:end])), text)
    if own_line:
        return text[: own_line[0]]
    return text[:last] if is_last else text


def _in_literal(text: str, start: int, end: int, language: str) -> bool:
    """Return whether a range is in a literal or comment: Python parses the text with other content."""
    return language == "python" and parses(f"{text[:start]}${text[end:]}")


def without_marker_lines(code: str) -> str:
    """Remove a `[BEGIN]` before the first line of code and a `[DONE]` after the last."""
    return _AROUND_CODE.sub("", code)


def _located(
    fences: Fences, markers: Iterable[re.Match[str]]
) -> Iterator[tuple[re.Match[str], int, Block | None]]:
    """Yield each marker, in order, with its line and its block."""
    blocks = fences.blocks(outlines=True)
    block = next(blocks, None)
    line = at = 0
    for found in markers:
        line += found.string.count("\n", at, found.start())
        at = found.start()
        while block is not None and block.end <= line:
            block = next(blocks, None)
        yield found, line, block if block is not None and block.first <= line else None
