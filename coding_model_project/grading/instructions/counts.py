"""Counts of a response's words, sentences, letters and marks: kinds of IFBench and IFEval."""

from __future__ import annotations

import re
from collections import Counter

from coding_model_project.grading.instructions.text import (
    EDGES,
    bare_words,
    compares,
    runs_of_word_characters,
    without_punctuation,
)
from coding_model_project.grading.instructions.tokens import sentence_count, tokens
from coding_model_project.grading.instructions.wordlists import word_list, word_set

_CONJUNCTIONS = frozenset(("and", "but", "for", "nor", "or", "so", "yet"))
_NAMES = word_list("""
    Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander
    Amelia Benjamin Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel
    Ella Jacob Scarlett Nathan Victoria Elijah Layla Nicholas Audrey David Hannah Christopher
    Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan
""")
"""The names that IFBench's prompts list."""

_PRONOUNS = word_set("""
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his
    himself she her hers herself it its itself they them their theirs themselves
""")
_MARKS = frozenset(".,!?;:")
_INTERROBANG = re.compile(r"\?!|!\?|‽")
_DIGITS = re.compile(r"\d+")
_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_MULTIPLE_TIMES = (1, 2, 3, 5, 7)


def word_count_range(response: str, *, min_words: int, max_words: int) -> bool:
    """Check count:word_count_range."""
    return min_words <= len(runs_of_word_characters(response)) <= max_words


def number_words(response: str, *, relation: str, num_words: int) -> bool:
    """Check length_constraints:number_words."""
    return compares(len(runs_of_word_characters(response)), relation, num_words)


def number_sentences(response: str, *, relation: str, num_sentences: int) -> bool:
    """Check length_constraints:number_sentences."""
    return compares(sentence_count(response), relation, num_sentences)


def unique_word_count(response: str, *, N: int) -> bool:
    """Check count:unique_word_count."""
    return len({word.strip(EDGES) for word in response.lower().split()}) >= N


def conjunctions(response: str, *, small_n: int) -> bool:
    """Check count:conjunctions. "And" and "and," count as two, as in the publisher's rule."""
    found = {word for word in response.split() if word.strip(EDGES).lower() in _CONJUNCTIONS}
    return len(found) >= small_n


def person_names(response: str, *, N: int) -> bool:
    """Check count:person_names. A name within a word counts too."""
    return sum(name in response for name in _NAMES) >= N


def numbers(response: str, *, N: int) -> bool:
    """Check count:numbers. "3.14" is one number, since punctuation is removed first."""
    return len(_DIGITS.findall(without_punctuation(response))) == N


def pronouns(response: str, *, N: int) -> bool:
    """Check count:pronouns. "she/her" counts as two."""
    words = bare_words(response.replace("/", " ").lower())
    return sum(word in _PRONOUNS for word in words) >= N


def punctuation(response: str) -> bool:
    """Check count:punctuation: every mark, plus an interrobang."""
    if not _INTERROBANG.search(response):
        return False
    # Remove one interrobang, so that its two marks do not count again. "‽" contains no other mark.
    both = "?!" if "?!" in response else "!?"
    return set(response.replace(both, "", 1)) >= _MARKS


def words_japanese(response: str, *, N: int) -> bool:
    """Check count:words_japanese. Numbers and lone punctuation may stand at these positions."""
    every = (word.strip(EDGES) for word in response.split()[N - 1 :: N])
    return all(_JAPANESE.search(word) for word in every if word and not word.isdigit())


def keywords_multiple(
    response: str, *, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str
) -> bool:
    """Check count:keywords_multiple: 1, 2, 3, 5 and 7 times, in any case, within words too."""
    keywords = (keyword1, keyword2, keyword3, keyword4, keyword5)
    text = response.lower()
    return all(
        text.count(keyword.strip().lower()) == times
        for keyword, times in zip(keywords, _MULTIPLE_TIMES, strict=True)
    )


def letter_frequency(response: str, *, letter: str, let_relation: str, let_frequency: int) -> bool:
    """Check keywords:letter_frequency. Case is ignored, and any character may be the letter."""
    return compares(response.lower().count(letter.lower()), let_relation, let_frequency)


def capital_word_frequency(response: str, *, capital_relation: str, capital_frequency: int) -> bool:
    """Check change_case:capital_word_frequency."""
    found = sum(token.isupper() for token in tokens(response))
    return compares(found, capital_relation, capital_frequency)


def palindrome(response: str) -> bool:
    """Check words:palindrome: ten words of at least five characters, repeats included."""
    words = bare_words(response.lower())
    return sum(len(word) >= 5 and word == word[::-1] for word in words) >= 10


def repeats(response: str, *, small_n: int) -> bool:
    """Check words:repeats."""
    return all(times <= small_n for times in Counter(bare_words(response.lower())).values())
