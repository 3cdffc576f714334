"""IFBench's "words" kinds: rules for each word, or for a word at some position."""

from __future__ import annotations

import re
import string
from itertools import islice, pairwise

from coding_model_project.extras import extra
from coding_model_project.grading.instructions.text import (
    EDGES,
    bare_words,
    sentences,
)
from coding_model_project.grading.instructions.tokens import tokens
from coding_model_project.grading.instructions.verbs import starts_with_verb

_CLUSTER = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}")
_VOWELS = frozenset("aeiou")
_PRIMES = frozenset(n for n in range(2, 98) if all(n % d for d in range(2, n)))
"""Prime word lengths up to 97, the end of the publisher's list."""

_NEXT_LETTER = dict(pairwise(string.ascii_lowercase + "a"))


def alphabet(response: str) -> bool:
    """Check words:alphabet: each word starts with the letter that follows the previous word's."""
    letters = [word[0].lower() for word in bare_words(response)]
    if not letters or letters[0] not in _NEXT_LETTER:
        return False
    return all(_NEXT_LETTER.get(one) == other for one, other in pairwise(letters))


def vowel(response: str) -> bool:
    """Check words:vowel: one paragraph, with at most three of the five vowels."""
    text = response.strip().lower()
    return "\n" not in text and len(_VOWELS.intersection(text)) <= 3


def consonants(response: str) -> bool:
    """Check words:consonants: two consonants in a row in each word."""
    return all(_CLUSTER.search(word) for word in response.lower().split())


def prime_lengths(response: str) -> bool:
    """Check words:prime_lengths. Punctuation does not count."""
    return all(len(word) in _PRIMES for word in bare_words(response))


def no_consecutive(response: str) -> bool:
    """Check words:no_consecutive: adjacent words start with different letters."""
    words = bare_words(response.lower())
    return all(one[0] != other[0] for one, other in pairwise(words))


def odd_even_syllables(response: str) -> bool:
    """Check words:odd_even_syllables, by syllapy's count.

    Raises:
        NotInstalledError: the extra "instructions" is not installed.
    """
    with extra("instructions"):
        import syllapy
    odd = [syllapy.count(word) % 2 for word in bare_words(response.lower())]
    return all(one != other for one, other in pairwise(odd))


def start_verb(response: str) -> bool:
    """Check words:start_verb."""
    return starts_with_verb(list(islice(tokens(response), 2)))


def last_first(response: str) -> bool:
    """Check words:last_first: each sentence starts with the last word of the one before."""
    for one, other in pairwise(sentences(response)):
        last, first = one.rstrip(EDGES).split()[-1:], other.lstrip(EDGES).split()[:1]
        if not last or not first or last[0].lower() != first[0].lower():
            return False
    return True


def paragraph_last_first(response: str) -> bool:
    """Check words:paragraph_last_first: each line ends with its first word."""
    lines = (line.strip().strip(EDGES).split() for line in response.lower().split("\n"))
    return all(words[0] == words[-1] for words in lines if words)


def keywords_specific_position(response: str, *, keyword: str, n: int, m: int) -> bool:
    """Check words:keywords_specific_position: the m-th token of the n-th sentence is the keyword."""
    found = sentences(response)
    if len(found) < n:
        return False
    return next(islice(tokens(found[n - 1]), m - 1, None), None) == keyword.strip()


def words_position(response: str, *, keyword: str) -> bool:
    """Check words:words_position. A final period is a token, so the keyword precedes it."""
    found = list(tokens(response))
    return len(found) > 1 and found[1] == found[-2] == keyword.strip()
