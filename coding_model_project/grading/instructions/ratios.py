"""IFBench's "ratio" kinds."""

from __future__ import annotations

from coding_model_project.grading.instructions.stop_words import STOP_WORDS
from coding_model_project.grading.instructions.text import runs_of_word_characters, sentences

_OVERLAP_TOLERANCE = 2
"""Percentage points."""


def stop_words(response: str, *, percentage: float) -> bool:
    """Check ratio:stop_words."""
    words = runs_of_word_characters(response)
    stops = sum(word.lower() in STOP_WORDS for word in words)
    return bool(words) and stops / len(words) * 100 <= percentage


def sentence_type(response: str) -> bool:
    """Check ratio:sentence_type: two sentences that end in a period for each that ends in "?"."""
    found = sentences(response)
    return _ending(found, ".") == 2 * _ending(found, "?")


def sentence_balance(response: str) -> bool:
    """Check ratio:sentence_balance: equally many sentences end in ".", "?" and "!"."""
    found = sentences(response)
    return _ending(found, ".") == _ending(found, "?") == _ending(found, "!")


def _ending(found: list[str], mark: str) -> int:
    return sum(sentence.endswith(mark) for sentence in found)


def overlap(response: str, *, reference_text: str, percentage: float) -> bool:
    """Check ratio:overlap: the share of the response's character trigrams found in the reference."""
    ours = _trigrams(response)
    if not ours:
        return False
    shared = len(ours & _trigrams(reference_text)) / len(ours) * 100
    return percentage - _OVERLAP_TOLERANCE <= shared <= percentage + _OVERLAP_TOLERANCE


def _trigrams(text: str) -> set[str]:
    return {text[start : start + 3] for start in range(len(text) - 2)}


def sentence_words(response: str) -> bool:
    """Check ratio:sentence_words: three sentences of equal length, in characters like the publisher's."""
    found = sentences(response)
    return len(found) == 3 and len({len(sentence) for sentence in found}) == 1
