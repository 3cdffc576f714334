"""Extraction of code from a completion (docs/grading.md). The verdict records the rule that applied.

1. Reasoning is dropped, and the markers `[BEGIN]` and `[DONE]` delimit code (`grading.markers`).
2. Candidates are the fenced blocks (`grading.fences`) tagged with the target language, and untagged
   ones; untagged blocks must parse if the language is Python. A session (`>>> `) and a blank block are
   not programs.
3. A block that fits the tests wins over one that does not: it defines a function that they call, or reads
   standard input if they write it (`grading.entry_points`). Next, a tagged block wins over an untagged
   one, and a later one over an earlier one.
4. Without any fence, the text itself is the code, if it follows `[BEGIN]` or the prompt asked for bare
   code. Such a text counts as code too if it parses as Python, even if its literals hold fences.

An unclosed final fence is accepted and flagged. Only the first `MAX_CHARACTERS` of an answer are read;
the verdict records longer ones. Every step takes time linear in the completion's length, and Python's
parser reads at most `literals.MAX_PARSED_OF_A_TEXT` of it; any further program counts as parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from coding_model_project.grading.entry_points import fits
from coding_model_project.grading.fences import Block, Fences, without_end_tokens
from coding_model_project.grading.info_strings import language_of
from coding_model_project.grading.literals import MAX_PARSED_OF_A_TEXT, parse_budget, parses
from coding_model_project.grading.markers import (
    answer_of,
    marked_program,
    until_done,
    without_marker_lines,
)
from coding_model_project.types import Problem

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
