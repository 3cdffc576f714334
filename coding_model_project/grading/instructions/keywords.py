"""Words that a response must or must not have, and its case and language: kinds of IFEval."""

from __future__ import annotations

import re
from collections.abc import Sequence

from coding_model_project.grading.instructions.languages import language as language_of
from coding_model_project.grading.instructions.text import compares


def existence(response: str, *, keywords: Sequence[str]) -> bool:
    """Check keywords:existence: in any case, within words too."""
    return all(_found(keyword, response) for keyword in keywords)


def frequency(response: str, *, keyword: str, relation: str, frequency: int) -> bool:
    """Check keywords:frequency: in any case, within words too."""
    found = re.findall(re.escape(keyword.strip()), response, re.IGNORECASE)
    return compares(len(found), relation, frequency)


def forbidden_words(response: str, *, forbidden_words: Sequence[str]) -> bool:
    """Check keywords:forbidden_words: in no case, but within words they may be."""
    return not any(_found(word, response, edge=r"\b") for word in forbidden_words)


def _found(words: str, response: str, *, edge: str = "") -> bool:
    return re.search(edge + re.escape(words) + edge, response, re.IGNORECASE) is not None


def no_comma(response: str) -> bool:
    """Check punctuation:no_comma."""
    return "," not in response


def english_capital(response: str) -> bool:
    """Check change_case:english_capital: English, without small letters."""
    return response.isupper() and language_of(response) == "en"


def english_lowercase(response: str) -> bool:
    """Check change_case:english_lowercase: English, without capital letters."""
    return response.islower() and language_of(response) == "en"


def response_language(response: str, *, language: str) -> bool:
    """Check language:response_language.

    A response without letters is in no language; the publisher lets it pass.
    """
    return language_of(response) == language
