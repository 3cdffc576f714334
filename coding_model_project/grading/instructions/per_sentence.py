"""Rules for each sentence: IFBench's kinds "sentence", and an emoji at its end."""

from __future__ import annotations

from itertools import pairwise

from coding_model_project.extras import extra
from coding_model_project.grading.instructions.text import (
    PUNCTUATION,
    bare_words,
    sentences,
    without_punctuation,
)


def alliteration_increment(response: str) -> bool:
    """Check sentence:alliteration_increment: more alliterative words in each sentence than before."""
    lengths = [_alliterative(sentence) for sentence in sentences(response)]
    return all(one < other for one, other in pairwise(lengths))


def _alliterative(sentence: str) -> int:
    """Count the words of all runs that share a first letter."""
    words = (word.lstrip(PUNCTUATION) for word in sentence.lower().split())
    same = [one[0] == other[0] for one, other in pairwise(word for word in words if word)]
    return sum(same) + sum(new and not before for before, new in pairwise([False, *same]))


def increment(response: str, *, small_n: int) -> bool:
    """Check sentence:increment: each sentence has that many words more than the one before."""
    lengths = [len(bare_words(sentence)) for sentence in sentences(response)]
    return bool(lengths) and all(other - one == small_n for one, other in pairwise(lengths))


def keyword(response: str, *, word: str, N: int) -> bool:
    """Check sentence:keyword. The word counts within another too."""
    found = sentences(response)
    return len(found) >= N and word.lower() in found[N - 1].lower()


def emoji_at_ends(response: str) -> bool:
    """Check format:emoji. The emoji stands before or after the mark that ends the sentence.

    Raises:
        NotInstalledError: the extra "instructions" is not installed.
    """
    with extra("instructions"):
        from emoji import is_emoji
    bare = [without_punctuation(sentence).strip() for sentence in sentences(response)]
    if not bare or not all(bare):
        return False
    # An emoji of two characters ends in a modifier, which alone is none: two characters are looked at.
    return all(
        any(map(is_emoji, one[-2:])) or is_emoji(other[:1]) for one, other in pairwise([*bare, ""])
    )
