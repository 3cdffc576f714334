"""IFBench's "sentence" kinds, and its kind on emoji at the ends of sentences."""

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
    """Check sentence:alliteration_increment: each sentence has more alliterative words than the last."""
    lengths = [_alliterative(sentence) for sentence in sentences(response)]
    return all(one < other for one, other in pairwise(lengths))


def _alliterative(sentence: str) -> int:
    """Count the words in all runs of words with the same first letter."""
    words = (word.lstrip(PUNCTUATION) for word in sentence.lower().split())
    same = [one[0] == other[0] for one, other in pairwise(word for word in words if word)]
    return sum(same) + sum(new and not before for before, new in pairwise([False, *same]))


def increment(response: str, *, small_n: int) -> bool:
    """Check sentence:increment: each sentence has `small_n` more words than the one before."""
    lengths = [len(bare_words(sentence)) for sentence in sentences(response)]
    return bool(lengths) and all(other - one == small_n for one, other in pairwise(lengths))


def keyword(response: str, *, word: str, N: int) -> bool:
    """Check sentence:keyword. The word within another word counts too."""
    found = sentences(response)
    return len(found) >= N and word.lower() in found[N - 1].lower()


def emoji_at_ends(response: str) -> bool:
    """Check format:emoji. The emoji may stand before or after the sentence's final mark.

    Raises:
        NotInstalledError: the extra "instructions" is not installed.
    """
    with extra("instructions"):
        from emoji import is_emoji
    bare = [without_punctuation(sentence).strip() for sentence in sentences(response)]
    if not bare or not all(bare):
        return False
    # Check two characters: an emoji of two ends in a modifier, which is not an emoji by itself.
    return all(
        any(map(is_emoji, one[-2:])) or is_emoji(other[:1]) for one, other in pairwise([*bare, ""])
    )
