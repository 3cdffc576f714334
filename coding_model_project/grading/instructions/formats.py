"""IFBench's "format" kinds: brackets, quotes, lists and other forms of text."""

from __future__ import annotations

import re
import string
from itertools import pairwise

from coding_model_project.grading.instructions.text import (
    EDGES,
    PUNCTUATION,
    sentences,
    without_punctuation,
)
from coding_model_project.grading.instructions.tokens import tokens

_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_BRACKET_LEVELS = 5
_QUOTE_LEVELS = 3
_LETTERED_OPTIONS = re.compile(r"\W*[aA]\W*[bB]\W*[cC]")
_TEMPLATE = ("My Answer:", "My Conclusion:", "Future Outlook:")
_NOT_PROSE = string.digits + PUNCTUATION.replace('"', "")


def parentheses(response: str) -> bool:
    """Check format:parentheses. The innermost bracket must be closed; a mismatch resets the count."""
    waiting: list[str] = []
    deepest = 0
    for character in response:
        if character in _CLOSED_BY:
            waiting.append(_CLOSED_BY[character])
            deepest = max(deepest, len(waiting))
        elif character in ")]}":
            if waiting and waiting[-1] == character:
                waiting.pop()
                if deepest >= _BRACKET_LEVELS:
                    return True
            else:
                waiting, deepest = [], 0
    return False


def quotes(response: str) -> bool:
    """Check format:quotes: three closed levels; an apostrophe counts as a quote."""
    waiting: list[str] = []
    deepest = 0
    for character in response:
        if waiting and waiting[-1] == character:
            waiting.pop()
            if deepest - len(waiting) >= _QUOTE_LEVELS:
                return True
        elif character in "\"'":
            waiting.append(character)
            deepest = max(deepest, len(waiting))
    return False


def options(response: str, *, options: str) -> bool:
    """Check format:options. Lettered options must match exactly, others in any case."""
    separator = next((mark for mark in ("/", "or") if mark in options), ",")
    choices = [choice.strip() for choice in options.split(separator)]
    if _LETTERED_OPTIONS.match(options):
        return response in choices
    return response.strip(EDGES).lower() in {choice.strip(EDGES).lower() for choice in choices}


def newline(response: str) -> bool:
    """Check format:newline: as many lines as words."""
    text = without_punctuation(response).strip()
    return sum(line != "" for line in text.split("\n")) == len(text.split())


def line_indent(response: str) -> bool:
    """Check format:line_indent: each line is indented more than the one before.

    As in the publisher's rule, a blank line does not count, but the line after it does, even if blank.
    """
    indents: list[int] = []
    after_blank = False
    for line in response.split("\n"):
        after_blank = not (line.strip() or after_blank)
        if not after_blank:
            indents.append(len(line) - len(line.lstrip(" ")))
    return all(one < other for one, other in pairwise(indents))


def quote_unquote(response: str) -> bool:
    """Check format:quote_unquote: no two adjacent quotes, and none at the end."""
    text = response.replace("“", '"').replace("”", '"').replace("'\"'", "")
    text = "".join(text.split())
    return '""' not in text and not text.strip(_NOT_PROSE).endswith('"')


def separated_list(response: str, *, sep: str) -> bool:
    """Check format:list: the separator occurs at least twice."""
    return response.count(sep) >= 2


def thesis(response: str) -> bool:
    """Check format:thesis: some text in HTML's italics, and some after it."""
    opening = next((tag for tag in ("<i>", "<em>") if tag in response), None)
    if opening is None:
        return False
    rest = response.partition(opening)[2]
    closing = next((tag for tag in ("</i>", "</em>") if tag in rest), None)
    if closing is None:
        return False
    italic, _, after = rest.partition(closing)
    return bool(italic.strip() and after.strip())


def sub_bullets(response: str) -> bool:
    """Check format:sub-bullets: a "-" after each "*" and before the next."""
    return all("-" in bullet for bullet in response.split("*")[1:])


def no_bullets_bullets(response: str) -> bool:
    """Check format:no_bullets_bullets: two sentences, then two bullets and nothing else.

    A blank line ends the sentences; no other blank line may follow.
    """
    in_sentences, n_sentences, n_bullets = True, 0, 0
    for line in map(str.strip, response.split("\n")):
        if line.startswith("*"):
            if n_sentences < 2:
                return False
            in_sentences, n_bullets = False, n_bullets + 1
        elif in_sentences:
            in_sentences = line != ""
            # Two are enough, and counting more would be slow for a response with many lines.
            n_sentences += len(sentences(line)) if n_sentences < 2 else 0
        else:
            return False
    return n_bullets >= 2


def title_case(response: str) -> bool:
    """Check format:title_case: no word of two or more letters starts with a lower-case letter.

    Words of mixed case such as "iPhone" pass.
    """
    return not any(
        token[0].islower() and (token[1:].islower() or token[1:].isupper())
        for token in tokens(response)
    )


def output_template(response: str) -> bool:
    """Check format:output_template: all three labels of the template occur."""
    return all(label in response for label in _TEMPLATE)


def no_whitespace(response: str) -> bool:
    """Check format:no_whitespace."""
    return not any(map(str.isspace, response))
