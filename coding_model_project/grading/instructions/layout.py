"""IFEval's kinds on layout: lists, sections, paragraphs and the like."""

from __future__ import annotations

import json
import re

_CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_POSTSCRIPTS = {"P.P.S": re.compile(r"p\.\s?p\.\s?s"), "P.S.": re.compile(r"p\.\s?s\.")}
_FENCES = ("```json", "```Json", "```JSON", "```")
_HIGHLIGHT = re.compile(r"\*([^\n*]*)\*")
_STRONG_HIGHLIGHT = re.compile(r"\*\*([^\n*]*)\*\*")
DIVIDER = re.compile(r"\s?\*\*\*\s?")
_TWO_RESPONSES = "******"
_ENDS_WORD = re.compile(r"[.,?!'\"]")


def number_placeholders(response: str, *, num_placeholders: int) -> bool:
    """Check detectable_content:number_placeholders: text in square brackets, within a line."""
    return sum(map(_placeholders, response.split("\n"))) >= num_placeholders


def _placeholders(line: str) -> int:
    # A regular expression would take quadratic time on repeated "[" without "]".
    found = 0
    end = -1
    while (start := line.find("[", end + 1)) >= 0 and (end := line.find("]", start + 1)) >= 0:
        found += 1
    return found


def postscript(response: str, *, postscript_marker: str) -> bool:
    """Check detectable_content:postscript: the marker occurs anywhere, in any case."""
    marker = postscript_marker.strip()
    pattern = _POSTSCRIPTS.get(marker)
    text = response.lower()
    return pattern.search(text) is not None if pattern else marker.lower() in text


def number_bullet_lists(response: str, *, num_bullets: int) -> bool:
    """Check detectable_format:number_bullet_lists: exactly `num_bullets` lines start with "*" or "-"."""
    lines = [line.lstrip() for line in response.split("\n")]
    dashes = sum(line.startswith("-") for line in lines)
    stars = 0
    is_text = False
    for line, is_last in zip(lines, [*[False] * (len(lines) - 1), True], strict=True):
        # A lone "*" takes the next line as its text, so that line is not a bullet itself.
        if is_text:
            is_text = False
        elif line == "*":
            is_text = not is_last
            stars += is_text
        elif line.startswith("*") and not line.startswith("**"):
            stars += 1
    return dashes + stars == num_bullets


def constrained_response(response: str) -> bool:
    """Check detectable_format:constrained_response."""
    return any(answer in response for answer in _CONSTRAINED)


def number_highlighted_sections(response: str, *, num_highlights: int) -> bool:
    """Check detectable_format:number_highlighted_sections: *text* or **text**, within a line."""
    once, twice = _HIGHLIGHT.findall(response), _STRONG_HIGHLIGHT.findall(response)
    return sum(bool(text.strip()) for text in (*once, *twice)) >= num_highlights


def multiple_sections(response: str, *, section_spliter: str, num_sections: int) -> bool:
    """Check detectable_format:multiple_sections: the word, then a number."""
    heading = re.compile(re.escape(section_spliter.strip()) + r"\s?\d+")
    return len(heading.findall(response)) >= num_sections


def json_format(response: str) -> bool:
    """Check detectable_format:json_format: JSON, with or without a fence."""
    text = response.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):  # invalid, or nested too deeply for Python
        return False
    return True


def title(response: str) -> bool:
    """Check detectable_format:title: text between << and >>, within a line."""
    return any(map(_has_title, response.split("\n")))


def _has_title(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return start >= 0 and end > start + 2 and bool(line[start:end].lstrip("<").rstrip(">").strip())


def number_paragraphs(response: str, *, num_paragraphs: int) -> bool:
    """Check length_constraints:number_paragraphs: divided by ***."""
    return has_paragraphs(DIVIDER.split(response), num_paragraphs)


def has_paragraphs(parts: list[str], number: int) -> bool:
    """Return whether so many parts are paragraphs; only the outermost may be empty."""
    blank = [not part.strip() for part in parts]
    return not any(blank[1:-1]) and blank.count(False) == number


def nth_paragraph_first_word(
    response: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """Check length_constraints:nth_paragraph_first_word: blank lines divide paragraphs."""
    paragraphs = response.split("\n\n")
    if sum(bool(paragraph.strip()) for paragraph in paragraphs) != num_paragraphs:
        return False
    words = paragraphs[nth_paragraph - 1].split(maxsplit=1)
    if not words:
        return False
    word = words[0].lstrip("'").lstrip('"')
    return _ENDS_WORD.split(word)[0].lower() == first_word.lower()


def two_responses(response: str) -> bool:
    """Check combination:two_responses: two different responses, divided by six asterisks."""
    parts = [part.strip() for part in response.split(_TWO_RESPONSES)]
    given = [part for part in parts if part]
    return all(parts[1:-1]) and len(given) == 2 and given[0] != given[1]
