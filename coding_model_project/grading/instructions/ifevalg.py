"""Kinds that IFEvalG (open-instruct) adds to IFEval's for training, such as those of `if_multi`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from coding_model_project.grading.instructions.layout import DIVIDER, has_paragraphs
from coding_model_project.grading.instructions.text import compares, sentences
from coding_model_project.grading.instructions.tokens import tokens

_COPIES = "******"
_LETTER = re.compile("[A-Za-z]")
_LOWER_CASE_WORD = re.compile(r"\b[a-z]+\b")
_PUNCTUATION = re.compile(r"[^\w\s]")


def copy(response: str, *, prompt_to_repeat: str) -> bool:
    """Check copy:copy and copy:copying_simple: the prompt and nothing else, in any case."""
    return _plain(response) == _plain(prompt_to_repeat)


def copying_multiple(response: str, *, prompt_to_repeat: str, N: int) -> bool:
    """Check copy:copying_multiple: `N` copies of the prompt, divided by six asterisks."""
    copies = [_plain(part) for part in response.split(_COPIES)]
    return copies == [_plain(prompt_to_repeat)] * N


def copy_span(response: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """Check new:copy_span_idx: characters up to, but excluding, `n_end`."""
    return _plain(response) == _plain(prompt_to_repeat[n_start:n_end])


def _plain(text: str) -> str:
    return text.strip().lower()


def repeat_phrase(response: str, *, phrase: str, small_n: int) -> bool:
    """Check copy:repeat_phrase: `small_n` times, with one word within the phrase replaced each time."""
    words = phrase.split()
    found = [one.split() for one in _from_to(response, words[0], words[-1])]
    return len(found) == small_n and all(
        len(one) == len(words) and sum(a != b for a, b in zip(one, words, strict=True)) == 1
        for one in found
    )


def _from_to(text: str, first: str, last: str) -> Iterator[str]:
    """Yield the shortest texts from one word to another, within a line."""
    for line in text.split("\n"):
        start = line.find(f"{first} ")
        while start >= 0 and (end := line.find(f" {last}", start + len(first) + 1)) >= 0:
            end += len(last) + 1
            yield line[start:end]
            start = line.find(f"{first} ", end)


def paragraphs(response: str) -> bool:
    """Check paragraphs:paragraphs: two, divided by ***."""
    return has_paragraphs(DIVIDER.split(response), 2)


def paragraphs2(response: str) -> bool:
    """Check paragraphs:paragraphs2: two, divided by a blank line."""
    return has_paragraphs(response.split("\n\n"), 2)


def counting_composition(response: str, *, n_sent: int, n_words: int) -> bool:
    """Check count:counting_composition: three paragraphs of `n_sent` sentences of `n_words` tokens."""
    parts = [sentences(part) for part in DIVIDER.split(response)]
    return len(parts) == 3 and all(
        len(part) == n_sent and all(len(list(tokens(one))) == n_words for one in part)
        for part in parts
    )


def count_unique(response: str) -> bool:
    """Check count:count_unique. A second period or comma is a repeated word."""
    found = list(tokens(response))
    return len(found) == len(set(found))


def lowercase_counting(response: str, *, N: int) -> bool:
    """Check count:lowercase_counting: at most `N` words in lower case altogether."""
    return len(_LOWER_CASE_WORD.findall(response)) <= N


def letter_counting(response: str, *, N: int, relation: str) -> bool:
    """Check letters:letter_counting. Only ASCII letters count."""
    return compares(len(_LETTER.findall(response)), relation, N)


def word_once(response: str, *, keyword: str) -> bool:
    """Check keywords:word_once: in any case, also within words."""
    return _times(keyword, response) == 1


def count_increment_word(response: str, *, keyword1: str, keyword2: str) -> bool:
    """Check count:count_increment_word: the first keyword once, the second twice."""
    return _times(keyword1, response) == 1 and _times(keyword2, response) == 2


def _times(keyword: str, text: str) -> int:
    return len(re.findall(re.escape(keyword.strip()), text, re.IGNORECASE))


def exclude_word_harder(response: str, *, keyword: str) -> bool:
    """Check keywords:exclude_word_harder: not in this case between two blanks."""
    return f" {keyword.strip()} " not in response


def first_word_sent(response: str, *, first_word: str) -> bool:
    """Check first_word:first_word_sent: each sentence's first word with its punctuation."""
    return all(_first(one) == first_word.strip().lower() for one in sentences(response))


def first_word_answer(response: str, *, first_word: str) -> bool:
    """Check first_word:first_word_answer."""
    return _first(response) == first_word.strip().lower()


def _first(text: str) -> str:
    return next(iter(text.lower().split(maxsplit=1)), "")


def last_word_sent(response: str, *, last_word: str) -> bool:
    """Check last_word:last_word_sent: each sentence's last word without punctuation."""
    return all(_last(one) == last_word.strip().lower() for one in sentences(response))


def last_word_answer(response: str, *, last_word: str) -> bool:
    """Check last_word:last_word_answer."""
    return _last(response) == last_word.strip().lower()


def _last(text: str) -> str:
    words = text.lower().rsplit(maxsplit=1)
    return _PUNCTUATION.sub("", words[-1]) if words else ""


def start_end(response: str) -> bool:
    """Check keywords:start_end: the first token is the last one, in any case."""
    found = list(tokens(response))
    return len(found) > 1 and found[0].lower() == found[-1].lower()


def palindrome(response: str) -> bool:
    """Check keywords:palindrome. A word of one letter is one."""
    return any(word == word[::-1] for word in response.split())


def no_adjacent_consecutive(response: str) -> bool:
    """Check keywords:no_adjacent_consecutive: no word starts with the letter after the last one's."""
    letters = [word[0].lower() for word in response.split()]
    if len(letters) > 1 and any(len(letter) != 1 for letter in letters):
        return False
    return all(ord(other) - ord(one) != 1 for one, other in pairwise(letters))


def sentence_hyphens(response: str) -> bool:
    """Check detectable_format:sentence_hyphens: the parts between hyphens are the sentences."""
    found = sentences(response.replace("-", " "))
    return all(one == other for one, other in zip(response.split("-"), found, strict=False))


def square_brackets(response: str) -> bool:
    """Check detectable_format:square_brackets: around each word."""
    return all(word.startswith("[") and word.endswith("]") for word in response.split())


def bigram_wrapping(response: str) -> bool:
    """Check detectable_format:bigram_wrapping: << and >> around each two words, a last one aside."""
    words = response.split()
    return all(
        one.startswith("<<") and other.endswith(">>")
        for one, other in zip(words[::2], words[1::2], strict=False)
    )


def no_dot(response: str) -> bool:
    """Check punctuation:punctuation_dot."""
    return "." not in response


def no_exclamation_mark(response: str) -> bool:
    """Check punctuation:punctuation_exclamation."""
    return "!" not in response
